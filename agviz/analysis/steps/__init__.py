"""What goes wrong between backward passes: in the steps of optimizers, and in what they hold."""
