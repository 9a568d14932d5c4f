//go:build !linux && !darwin

package atomicfile

import "errors"

// renameNew renames temp to target, which must not exist (ErrExists).
func renameNew(temp, target string) error { return renameNewChecked(temp, target) }

// exchange reports that names cannot be swapped in one step here.
func exchange(_, _ string) error { return errors.ErrUnsupported }
