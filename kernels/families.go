package kernels

import (
	"fmt"
	"os"
	"slices"
	"strings"
)

// offVariable names families of kernels, with commas between them, that are not used.
const offVariable = "GLIMPSE_CUDA_OFF"

// family is a set of kernels of a device that something slower can stand in for: where a
// variable switches it off, and where its check at the first use fails.
type family string

// The families.
const (
	familyFewRows       family = "few_rows"
	familyFewNorms      family = "few_norms"
	familyHeads         family = "heads"
	familyAttendStep    family = "attend_step"
	familyPrefillHopper family = "prefill_hopper"
	familyPrefillMMA    family = "prefill_mma"
	familyObserve       family = "observe"
	familyRounded       family = "rounded"
	familyGradMMA       family = "grad_mma"
	familyThin          family = "thin"
	familyTraining      family = "training"
	familyPairs         family = "pairs"
	familySteps         family = "steps"
	familySample        family = "sample"
	familySelect        family = "select"
	familySparse        family = "sparse"
	familyMoments       family = "moments"
	familyMerge         family = "merge"
)

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

// selecting are the families of a Selector, which is used as a whole.
var selecting = []family{familySelect, familySparse, familyMoments, familyMerge}

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

// SelectorOf is b where it selects in its own memory, nil where the host does.
func SelectorOf(b Backend) Selector {
	s, ok := b.(Selector)
	if u, asks := b.(interface{ uses(...family) bool }); !ok || asks && !u.uses(selecting...) {
		return nil
	}
	return s
}

// StepperOf is b where it has what recorded steps need, nil where it has not.
func StepperOf(b Backend) Stepper {
	s, ok := b.(Stepper)
	if u, asks := b.(interface{ uses(...family) bool }); !ok || asks && !u.uses(familySteps) {
		return nil
	}
	return s
}

// DrawerOf is b where it samples in its own memory, nil where the host does.
func DrawerOf(b Backend) Drawer {
	d, ok := b.(Drawer)
	if u, asks := b.(interface{ uses(...family) bool }); !ok || asks && !u.uses(familySample) {
		return nil
	}
	return d
}
