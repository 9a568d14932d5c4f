package cuda

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
