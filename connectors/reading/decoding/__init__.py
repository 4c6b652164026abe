"""Records as Arrow arrays: the kernel's buffers of a split, and the columns and batches made from them."""
