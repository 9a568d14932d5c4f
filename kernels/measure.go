package kernels

// MemoryUse is the memory of a device, in bytes.
type MemoryUse struct {
	Live      int64 // of tensors
	Held      int64 // taken from the driver: tensors, free blocks, scratch memory
	Peak      int64 // most held since the start or ResetPeak
	Available int64 // that new tensors could have
	Kept      int64 // of Held, scratch memory and workspace: not for tensors, but forecasts count them
	Total     int64 // of the device, or the limit
}
