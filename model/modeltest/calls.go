package modeltest

import "glimpse/kernels"

// Calls is the number of launches, copies and graphs that a device was given so far; the
// device is one of kernels/cuda.
func Calls(b kernels.Backend) int64 { return b.(interface{ Calls() int64 }).Calls() }
