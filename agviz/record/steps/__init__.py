"""What optimizers hold, find and leave behind in each step."""
