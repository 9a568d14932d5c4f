//go:build gpu && linux && (amd64 || arm64)

package cuda

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// offVariable names families of kernels, with commas between them, that are not used.
const offVariable = "GLIMPSE_CUDA_OFF"

// familyNames are all names, sorted.
func familyNames() []string {
	var names []string
	for f := range families {
		names = append(names, string(f))
	}
	slices.Sort(names)
	return names
}

// switchedOff are the families that $GLIMPSE_CUDA_OFF names.
func switchedOff() (map[family]bool, error) {
	off := make(map[family]bool)
	for _, name := range strings.Split(os.Getenv(offVariable), ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			continue
		}
		if _, ok := families[family(name)]; !ok {
			return nil, fmt.Errorf("%s: unknown kernels %q, want of: %s", offVariable, name, strings.Join(familyNames(), ", "))
		}
		off[family(name)] = true
	}
	return off, nil
}
