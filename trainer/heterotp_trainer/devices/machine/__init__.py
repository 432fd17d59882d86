"""What the machine of a rank says about why it may be slow: counters of the kernel and of a GPU, read now and then.

A file, a field or a library that is absent makes a value "not known" (None, then NaN); it is never an error.
"""
