// Package outputs is the rule for what commands write: no file is written over unasked, by two
// runs at a time, or as an input or another output.
package outputs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"glimpse/internal/atomicfile"
	"glimpse/internal/filelock"

	"github.com/spf13/pflag"
)

// Files are the files that a command writes, under one rule: they are opened before
// the work starts, a file that exists is refused without --replace, and an input or
// another output is never written over.
type Files struct {
	Replace bool

	inputs []string
	files  []*File
	errs   []error
}

// File is a file to be written. One without a path takes nothing.
type File struct {
	flag, path string
	file       *atomicfile.File
	stdout     bool // path is "-"
}

// Bind adds --replace.
func (o *Files) Bind(f *pflag.FlagSet) {
	f.BoolVar(&o.Replace, "replace", o.Replace, "overwrite output files that exist")
}

// Input names a file that the command reads.
func (o *Files) Input(paths ...string) { o.inputs = append(o.inputs, paths...) }

// Check is an error unless the output of a flag may be written.
func (o *Files) Check(flag, path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	for _, input := range o.inputs {
		if in, err := os.Stat(input); err == nil && os.SameFile(in, info) && info.Mode().IsRegular() {
			return fmt.Errorf("%s: %s is what this command reads, want another file", flag, path)
		}
	}
	if info.Mode().IsRegular() && !o.Replace && !atomicfile.OfProcess(path) {
		return fmt.Errorf("%s: %s exists: write over it with --replace, or name another file", flag, path)
	}
	return nil
}

// Open starts the file of a flag; path may be "", or "-" for standard output. Err tells what
// could not be opened.
func (o *Files) Open(flag, path string) *File {
	out := &File{flag: flag, path: path}
	if path == "" {
		return out
	}
	if path == "-" {
		out.stdout = true
		return out
	}
	if err := o.openOutput(out); err != nil {
		o.errs = append(o.errs, err)
	}
	return out
}

// Any tells that a file was opened.
func (o *Files) Any() bool { return len(o.files) > 0 }

// Err are the errors of all calls of Open.
func (o *Files) Err() error { return errors.Join(o.errs...) }

func (o *Files) openOutput(out *File) (err error) {
	if err := o.Check(out.flag, out.path); err != nil {
		return err
	}
	for _, other := range o.files {
		if err := Distinct(Named{other.flag, other.path}, Named{out.flag, out.path}); err != nil {
			return err
		}
	}
	if out.file, err = atomicfile.Create(out.path); err != nil {
		return fmt.Errorf("%s: %w", out.flag, err)
	}
	o.files = append(o.files, out)
	return nil
}

// Named is a path by the flag that gives it; "" is none.
type Named struct{ Flag, Path string }

// Distinct is an error where two outputs of a command are one file.
func Distinct(outputs ...Named) error {
	for i, b := range outputs {
		for _, a := range outputs[:i] {
			if a.Path != "" && b.Path != "" && !strings.Contains(a.Path, "://") && sameFile(a.Path, b.Path) {
				return fmt.Errorf("%s: %s is the file of %s, too", b.Flag, b.Path, a.Flag)
			}
		}
	}
	return nil
}

// sameFile tells that two paths lead to one file, which need not be there.
func sameFile(a, b string) bool {
	if x, err := os.Stat(a); err == nil {
		y, err := os.Stat(b)
		return err == nil && os.SameFile(x, y)
	}
	return place(a) == place(b)
}

// place is where a file of that name comes to lie.
func place(path string) string {
	if to, err := os.Readlink(path); err == nil { // of a link that leads nowhere yet
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	if full, err := filepath.Abs(path); err == nil {
		path = full
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
		path = filepath.Join(dir, filepath.Base(path))
	}
	return path
}

// Write puts what f writes in the file's place. It does nothing for a file without a path.
func (out *File) Write(f func(w io.Writer) error) error {
	if out.stdout {
		if err := f(os.Stdout); err != nil {
			return fmt.Errorf("%s: standard output: %w", out.flag, err)
		}
		return nil
	}
	if out.file == nil {
		return nil
	}
	if err := f(out.file); err != nil {
		return fmt.Errorf("%s: %w", out.flag, err)
	}
	if err := out.file.Commit(); err != nil {
		return fmt.Errorf("%s: %w", out.flag, err)
	}
	return nil
}

// Wanted tells that the output has a path.
func (out *File) Wanted() bool { return out.file != nil || out.stdout }

// Close drops the files that were not written.
func (o *Files) Close() {
	for _, out := range o.files {
		out.file.Abort()
	}
}

// Lock keeps a second run from an output that is written for long. The lock is
// a hidden file beside it, which goes with the lock.
func Lock(path string) (unlock func(), err error) {
	if info, err := os.Stat(path); err == nil && (!info.Mode().IsRegular() || atomicfile.OfProcess(path)) {
		return func() {}, nil // a device or a FIFO, which any number may write to
	}
	name := filepath.Join(filepath.Dir(path), "."+filepath.Base(path)+".lock")
	release, free, err := filelock.TryLock(name)
	var at *fs.PathError
	switch {
	case errors.As(err, &at): // of a file that people do not know of
		return nil, fmt.Errorf("%s: %s: %w", path, filepath.Dir(path), at.Err)
	case err != nil:
		return nil, fmt.Errorf("lock of %s: %w", path, err)
	case !free:
		return nil, fmt.Errorf("%s: another run is writing it", path)
	}
	return func() {
		os.Remove(name) // before it is let go, so that nobody holds the lock of a file without a name
		release()
	}, nil
}
