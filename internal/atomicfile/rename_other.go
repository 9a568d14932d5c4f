//go:build !linux && !darwin

package atomicfile

import "errors"

const noReplace, swap = 0, 0

// renameAs reports that names cannot be renamed so here.
func renameAs(_, _ string, _ uint) error { return errors.ErrUnsupported }
