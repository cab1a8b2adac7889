"""What a recipe comes to on one kind of GPU, in numbers, and what to beware of there."""
