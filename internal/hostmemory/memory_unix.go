//go:build unix

// Package hostmemory tells how much memory the process holds and the system has.
package hostmemory

import (
	"bytes"
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Peak is the most resident memory that the process has held, in bytes; 0
// where the system does not tell. Mapped weights count as far as they were read.
func Peak() int64 {
	// Where there is /proc: getrusage counts what the parent held when it forked, too.
	if data, err := os.ReadFile("/proc/self/status"); err == nil {
		if _, rest, ok := bytes.Cut(data, []byte("VmHWM:")); ok {
			if fields := bytes.Fields(rest); len(fields) > 1 && string(fields[1]) == "kB" {
				if kib, err := strconv.ParseInt(string(fields[0]), 10, 64); err == nil {
					return kib * 1024
				}
			}
		}
	}
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

// Resident is the resident memory that the process holds now, in bytes; the
// most that it has held where the system only tells that.
func Resident() int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return Peak()
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return Peak()
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return Peak()
	}
	return pages * int64(os.Getpagesize())
}
