package jobs

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"

	"glimpse/internal/regularfile"
)

// ReopenLines opens a file of lines, each a result, for those that come next. It calls take with the lines that are there, without
// their ends. The first one that take refuses, or that a kill has cut, is cut off with all that follow.
func ReopenLines(path string, take func(line []byte) (ok bool, err error)) (*os.File, error) {
	whole, err := takeLines(path, take)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o666)
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(whole); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// takeLines returns the bytes of the lines that take accepts.
func takeLines(path string, take func(line []byte) (ok bool, err error)) (whole int64, err error) {
	in, err := regularfile.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer in.Close()
	for r := bufio.NewReader(in); ; {
		line, err := regularfile.Line(r, maxResult)
		if err == io.EOF {
			return whole, nil
		}
		if err != nil {
			return 0, err
		}
		if ok, err := take(line[:len(line)-1]); err != nil || !ok {
			return whole, err
		}
		whole += int64(len(line))
	}
}
