//go:build gpu && linux && (amd64 || arm64)

package cuda

import "os"

// A process that only checks the kernels for Hopper ends here. The files of a package are
// initialised in the order of their names: this one comes after those that register
// backends and checks.
func init() {
	if text, ok := os.LookupEnv(preflightVariable); ok {
		os.Exit(checkHere(text))
	}
}
