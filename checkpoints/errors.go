package checkpoints

import (
	"errors"
	"fmt"
	"strings"

	"glimpse/internal/listing"
)

// Errors a caller decides on, found with errors.Is.
var (
	// ErrCorrupt: the content of a file is damaged or malformed.
	ErrCorrupt = errors.New("corrupt file")
	// ErrVersion: the file is of a format version that this program does not know.
	ErrVersion = errors.New("unknown format version")
	// ErrNoTensor: the file or folder holds no tensor of that name.
	ErrNoTensor = errors.New("no such tensor")
	// ErrDType: the tensor is there, in a type that cannot be computed with.
	ErrDType = errors.New("unsupported dtype")
	// ErrWrongBase: the adapter was trained for another base model.
	ErrWrongBase = errors.New("adapter belongs to another base model")
	// ErrWrongKind: the adapter is of another kind.
	ErrWrongKind = errors.New("adapter is of another kind")
	// ErrNotAdapter: the folder exists and is not an adapter.
	ErrNotAdapter = errors.New("not an adapter folder")
)

// corruptError is ErrCorrupt without repeating its text in every message.
type corruptError string

func (e corruptError) Error() string        { return string(e) }
func (e corruptError) Is(target error) bool { return target == ErrCorrupt }

// Corruptf is an error that is ErrCorrupt.
func Corruptf(format string, args ...any) error { return corruptError(fmt.Sprintf(format, args...)) }

// dtypeError is ErrDType, with the text of the error it wraps.
type dtypeError struct{ error }

func (e dtypeError) Is(target error) bool { return target == ErrDType }

// listNames renders names for an error message.
func listNames(names []string) string { return listing.Names(names) }

// problems are lists of names with what is wrong with them.
type problems []string

func (p *problems) addNames(what string, names []string) {
	if len(names) > 0 {
		*p = append(*p, what+" "+listNames(names))
	}
}

// in is the one error of all problems, nil of none; it begins with where they are.
func (p problems) in(where string) error {
	if len(p) == 0 {
		return nil
	}
	return Corruptf("%s%s", where, strings.Join(p, "; "))
}

type versionError struct{ got, want int }

func (e versionError) Error() string {
	return fmt.Sprintf("%v: got %d, want %d; it was written by another version of this program", ErrVersion, e.got, e.want)
}
func (e versionError) Is(target error) bool { return target == ErrVersion }
