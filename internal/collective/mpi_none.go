//go:build !(linux && cgo && (amd64 || arm64))

package collective

import (
	"errors"
	"fmt"
)

var errNotBuilt = errors.New("this program was built without cgo, as static programs are, and cannot load MPI: build it with a C compiler, or take the archive for CUDA, which runs without a GPU too")

// Library is the MPI library that runs of several processes would use: its path and version.
func Library() (path, version string, err error) { return "", "", errNotBuilt }

func openMPI(l launched) (Group, error) {
	return nil, fmt.Errorf("ranks: %s has started %d processes: %w", l.by, l.size, errNotBuilt)
}
