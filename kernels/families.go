package kernels

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

// selecting are the families of a Selector, which is used as a whole.
var selecting = []family{familySelect, familySparse, familyMoments, familyMerge}

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
