//go:build gpu && linux && (amd64 || arm64)

package cudadriver

// MaxPlans are the plans that are kept.
const MaxPlans = maxPlans
