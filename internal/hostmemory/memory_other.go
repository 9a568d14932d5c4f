//go:build !unix

package hostmemory

// Peak is the most resident memory that the process has held, in bytes; 0
// where the system does not tell.
func Peak() int64 { return 0 }

// Resident is the resident memory that the process holds now; 0 where the
// system does not tell.
func Resident() int64 { return 0 }
