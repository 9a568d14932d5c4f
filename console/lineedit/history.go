package lineedit

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"glimpse/internal/filelock"
	"glimpse/internal/printable"
	"glimpse/internal/regularfile"
)

const (
	maxHistory = 1000 // lines
	// Bytes of a line that is kept in the file; what is longer was not typed.
	maxKept = 4096
	// header is the first line of every file of history, and of no other file: lines must not
	// be added to whatever file a variable names.
	header = "# Lines typed in chats of Glimpse"
	// How long one waits for another program that writes the file. It does so for
	// milliseconds, unless it is stopped.
	maxWait = time.Second
)

// ErrForeign is of a file that is not to be taken for the history.
var ErrForeign = errors.New("not a history of chats: want a new file")

// history are the lines so far, the oldest first, without empty and repeated ones.
type history struct {
	lines []string
	path  string // of the file that they are kept in; "": none
}

// addLine adds a line, and to the file where it is to be kept.
func (h *history) addLine(line string, keep bool) error {
	if n := len(h.lines); strings.TrimSpace(line) == "" || n > 0 && h.lines[n-1] == line {
		return nil
	}
	h.lines = append(h.lines, line)
	h.lines = h.lines[max(0, len(h.lines)-maxHistory):]
	if h.path == "" || !keep || !keepable(line) {
		return nil
	}
	return appendLine(h.path, line)
}

// keepable tells that a line may stand in the file: others are not shown from it either,
// since a terminal may obey them, or were written by something else.
func keepable(line string) bool {
	return len(line) <= maxKept && strings.TrimSpace(line) != "" && !strings.ContainsAny(line, "\n\t") && utf8.ValidString(line) && printable.Text(line) == line
}

// openFile reads the lines of a file, which need not be there, and keeps later ones in it. It is
// ErrForeign where the file is another's. A link may lead to a history that is there; where it
// leads to nothing yet, or to an empty file, that is not known to be the user's own choice.
func (h *history) openFile(path string) error {
	info, err := os.Lstat(path)
	link := err == nil && info.Mode().Type() == fs.ModeSymlink
	if link {
		target, err := filepath.EvalSymlinks(path)
		if err != nil {
			return fmt.Errorf("%s: a link that leads nowhere: %w", path, ErrForeign)
		}
		path = target
	}
	lines, data, err := readLines(path)
	if err != nil {
		return err
	}
	if link && len(data) == 0 {
		return fmt.Errorf("%s: an empty file behind a link: %w", path, ErrForeign)
	}
	h.lines = lines
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	unlock, err := lock(path)
	if err != nil {
		return err
	}
	unlock()
	if err := os.Chmod(path, 0o600); err != nil { // it may have been made otherwise
		return err
	}
	h.path = path
	return nil
}

// readLines are the latest lines of a file of history, and the file's bytes. A last line
// without its end was cut by a kill, or is of an editor: it counts.
func readLines(path string) (lines []string, data []byte, err error) {
	const most = 2 * maxHistory * maxKept
	data, err = regularfile.ReadFS(os.DirFS(filepath.Dir(path)), filepath.Base(path), most)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	first, rest, _ := strings.Cut(string(data), "\n")
	if first != header && !(rest == "" && !bytes.Contains(data, []byte("\n")) && strings.HasPrefix(header, first)) { // cut by a kill
		return nil, nil, fmt.Errorf("%s: %w", path, ErrForeign)
	}
	for line := range strings.SplitSeq(rest, "\n") {
		if n := len(lines); keepable(line) && (n == 0 || lines[n-1] != line) {
			lines = append(lines, line)
		}
	}
	return lines[max(0, len(lines)-maxHistory):], data, nil
}

// lock makes the file where it is not there, and has no other program write it. The lock is
// of the file itself, which another may have replaced meanwhile.
func lock(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	f.Close()
	ctx, cancel := context.WithTimeoutCause(context.Background(), maxWait, fmt.Errorf("%s: another program has had it for %v", path, maxWait))
	defer cancel()
	return filelock.Lock(ctx, path, nil)
}

// appendLine adds a line to a file, by one write at its end. A full file is replaced by one
// of the latest lines. So a kill cuts the last line at worst, and what two programs add at once
// is all there.
func appendLine(path, line string) error {
	unlock, err := lock(path)
	if err != nil {
		return err
	}
	defer unlock()
	lines, data, err := readLines(path)
	if err != nil {
		return err
	}
	if n := len(lines); n > 0 && lines[n-1] == line {
		return nil
	}
	if begun := bytes.HasPrefix(data, []byte(header+"\n")); !begun || bytes.Count(data, []byte("\n")) > maxHistory {
		lines = append(lines, line)
		return replaceFile(path, header+"\n"+strings.Join(lines[max(0, len(lines)-maxHistory):], "\n")+"\n")
	}
	if n := len(data); n > 0 && data[n-1] != '\n' {
		line = "\n" + line
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(line + "\n")
	return errors.Join(err, f.Close())
}

// replaceFile is for who has the lock. What a kill leaves of the new file is overwritten the
// next time.
func replaceFile(path, text string) error {
	fresh := path + ".new"
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		os.Remove(fresh)
	}
	return err
}
