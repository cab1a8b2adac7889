"""Facts of GPUs and models, step times in closed form, memory arithmetic, named profiles.

One source for the launch plan, the emulator and the simulator, so that their numbers cannot
differ. Pure: nothing here reads a clock, a file or the machine it runs on.
"""
