package hostmemory

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"glimpse/internal/bytesize"
)

// Room is the memory that programs can have, in bytes, and what bounds it.
type Room struct {
	// Available can be had without others being swapped out or killed. It is 0 where the system does not tell, and at
	// least 1 where it does.
	Available int64
	// Limit is what Available is the free part of: the machine's memory, or a control group's.
	Limit int64
	// File is the control group's file that says so, "" for the machine.
	File string
}

// String is the room in words: "6.5 of 8.0 GiB free (limit /sys/fs/cgroup/memory.max)".
func (r Room) String() string {
	text := bytesize.FormatMemory(r.Available) + " free of " + bytesize.FormatMemory(r.Limit)
	if r.File != "" {
		text += " (limit " + r.File + ")"
	}
	return text
}

// Available is what [Find] says of it.
func Available() int64 { return Find().Available }

// Find looks for the memory that the program can have: the smallest of Linux's MemAvailable and of the limits that the
// control groups (containers, units of systemd, jobs of a cluster) set that it runs in.
func Find() Room { return findIn("/") }

// findIn is Find of a machine whose files lie below root.
func findIn(root string) Room {
	r := ofMachine(root)
	for _, g := range groupsOf(root) {
		for _, bound := range g.bounds() {
			if r.Available == 0 || bound.Available < r.Available {
				r = bound
			}
		}
	}
	return r
}

// ofMachine reads MemAvailable; the zero Room says that there is none.
func ofMachine(root string) (r Room) {
	raw, err := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	if err != nil {
		return r
	}
	total, free := int64(-1), int64(-1)
	for line := range strings.Lines(string(raw)) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if len(fields) != 2 || fields[1] != "kB" {
			continue
		}
		n, err := strconv.ParseInt(fields[0], 10, 64)
		switch {
		case err != nil || n < 0 || n > noLimit/1024:
		case name == "MemTotal":
			total = n * 1024
		case name == "MemAvailable":
			free = n * 1024
		}
	}
	if free < 0 {
		return r
	}
	return Room{Available: max(1, free), Limit: max(total, free)}
}
