// Package terminal says whether a person sees what is written to a file.
package terminal

import (
	"os"

	"golang.org/x/term"

	"glimpse/internal/collective"
)

// Is tells that f is a terminal that this process writes to itself. Open MPI's mpirun gives
// rank 0 one in any case and hands on what comes, to a file as well: ranks have none.
func Is(f *os.File) bool {
	if f == nil || !term.IsTerminal(int(f.Fd())) {
		return false
	}
	_, _, size := collective.Launched(os.Getenv)
	return size == 1
}

// Columns is the width of the terminal f, 80 where it does not tell; 0: f is none.
func Columns(f *os.File) int {
	if !Is(f) {
		return 0
	}
	if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
		return columns
	}
	return 80
}
