package kernels

import (
	"fmt"
	"strconv"
	"strings"
)

// DeviceList reads the name of one device, or of several that share a model: a list such as
// cuda:0,cuda:2 or a range such as cuda:0-3, in the order of the model's layers.
func DeviceList(names string) ([]string, error) {
	var out []string
	for name := range strings.SplitSeq(names, ",") {
		name = strings.TrimSpace(name)
		kind, span, _ := strings.Cut(name, ":")
		first, last, isRange := strings.Cut(span, "-")
		if !isRange {
			out = append(out, name)
			continue
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || from < 0 || to < from || to-from >= maxDevices {
			return nil, fmt.Errorf("device %q: want a range such as %s:0-3", name, kind)
		}
		for i := from; i <= to; i++ {
			out = append(out, fmt.Sprintf("%s:%d", kind, i))
		}
	}
	if len(out) > maxDevices {
		return nil, fmt.Errorf("devices %q: %d devices, want at most %d", names, len(out), maxDevices)
	}
	return out, nil
}

// maxDevices is the most devices of a process.
const maxDevices = 64

// OpenList is Open of every device of a DeviceList.
func OpenList(names string) ([]Backend, error) {
	list, err := DeviceList(names)
	if err != nil {
		return nil, err
	}
	var out []Backend
	for _, name := range list {
		b, err := Open(name)
		if err != nil {
			return nil, err
		}
		out = append(out, b)
	}
	return out, nil
}
