//go:build unix

package cli

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// PeakMemory is the most resident memory that the process has held, in bytes; 0
// where the system does not tell. Mapped weights count as far as they were read.
func PeakMemory() int64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	peak := int64(u.Maxrss)
	if runtime.GOOS != "darwin" { // there in bytes, elsewhere in KiB
		peak *= 1024
	}
	return peak
}
