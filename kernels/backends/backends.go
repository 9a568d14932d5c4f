// Package backends links every backend, so that kernels.Open finds them by name.
package backends

import (
	_ "glimpse/kernels/cpu"
	_ "glimpse/kernels/cuda"
	_ "glimpse/kernels/reference"
)
