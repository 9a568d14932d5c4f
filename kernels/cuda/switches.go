//go:build gpu && linux && amd64

package cuda

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// offVariable names families of kernels, with commas between them, that are not used.
const offVariable = "GLIMPSE_CUDA_OFF"

// families says of each what takes its place.
var families = map[family]string{
	familyFewRows:       "products of cuBLASLt",
	familyFewNorms:      "norms of any rows",
	familyHeads:         "norms and rotations one by one",
	familyAttendStep:    "attention of any rows",
	familyPrefillHopper: "prefill_mma",
	familyPrefillMMA:    "attention of any rows",
	familyObserve:       "attention of any rows",
	familyRounded:       "observe",
	familyGradMMA:       "the gradient in float32",
	familyThin:          "products of cuBLASLt",
	familyTraining:      "operations one by one",
	familyPairs:         "copies head by head",
	familySteps:         "steps that are not recorded",
	familySample:        "sampling on the host",
	familySelect:        "selection on the host",
	familySparse:        "selection on the host",
	familyMoments:       "selection on the host",
	familyMerge:         "selection on the host",
}

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
