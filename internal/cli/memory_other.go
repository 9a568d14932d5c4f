//go:build !unix

package cli

// PeakMemory is the most resident memory that the process has held, in bytes; 0
// where the system does not tell.
func PeakMemory() int64 { return 0 }

// ResidentMemory is the resident memory that the process holds now; 0 where the
// system does not tell.
func ResidentMemory() int64 { return 0 }

// AvailableMemory is the memory that programs can have without others being swapped
// out, in bytes; 0 where the system does not tell.
func AvailableMemory() int64 { return 0 }
