"""No models. Django only tells apps with this module to create tables, as those of boards."""
