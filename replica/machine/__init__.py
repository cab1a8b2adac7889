"""What is really here: model folders, GPUs, memory, disks and ports of this machine."""
