package datasets

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"glimpse/internal/collective"
	"glimpse/internal/listing"
)

// Contents identify the data of a run: the files by the names that it has for them, each once,
// sorted. Nil is of data that were not recorded, or of none.
type Contents []Content

// Content identifies one file.
type Content struct {
	File   string `json:"file"`
	SHA256 string `json:"sha256"` // of its bytes, lower-case hexadecimal
}

// ErrDataChanged is returned where data are not those that a run was begun with.
var ErrDataChanged = errors.New("the data have changed since the run was begun")

// maxListed is how many files of a folder are named one by one.
const maxListed = 64

// Add reads the file or folder at path, which the run calls name; pipes it leaves out. Of a folder it takes all files but
// hidden ones, by NAME/FILE; where these are more than 64, all have one hash: the SHA-256 of a line
// "SHA256  FILE" for each, sorted by name.
func (c *Contents) Add(ctx context.Context, name, path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("hash data: %w", err)
	}
	switch {
	case info.Mode().IsRegular():
		sum, err := fileSum(ctx, path)
		if err == nil {
			c.Put(name, sum)
		}
		return err
	case !info.IsDir(): // a pipe, which can be read once
		return nil
	}
	var files Contents
	err = walkFiles(path, func(file, name string) error {
		sum, err := fileSum(ctx, file)
		files.Put(name, sum)
		return err
	})
	if err != nil {
		return fmt.Errorf("hash data: %w", err)
	}
	if len(files) > maxListed {
		h := sha256.New()
		for _, f := range files {
			fmt.Fprintf(h, "%s  %s\n", f.SHA256, f.File)
		}
		c.Put(strings.TrimSuffix(name, "/")+"/", fmt.Sprintf("%x", h.Sum(nil)))
		return nil
	}
	for _, f := range files {
		c.Put(joinName(name, f.File), f.SHA256)
	}
	return nil
}

// AddStream identifies synthetic prompts by the first of each task: another version may make others.
func (c *Contents) AddStream(s *Stream) error {
	h := sha256.New()
	for i := range s.tasks {
		e, err := s.At(i)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(h).Encode(e); err != nil {
			return err
		}
	}
	c.Put(s.String(), fmt.Sprintf("%x", h.Sum(nil)))
	return nil
}

// joinName is the name of a file of a folder, which may be a URL.
func joinName(folder, file string) string {
	if folder == "." {
		return file
	}
	return strings.TrimSuffix(folder, "/") + "/" + path.Clean(file)
}

// ContentsText is the JSON of Contents, for comparisons; "" of none.
type ContentsText string

// MarshalJSON returns the text.
func (t ContentsText) MarshalJSON() ([]byte, error) { return []byte(t), nil }

// JSONText is the JSON of them.
func (c Contents) JSONText() ContentsText {
	if len(c) == 0 {
		return ""
	}
	text, err := json.Marshal(c)
	if err != nil {
		panic(err) // of texts
	}
	return ContentsText(text)
}

// ParseContents reads what Text returns.
func ParseContents(text ContentsText) (c Contents, err error) {
	if text != "" {
		err = json.Unmarshal([]byte(text), &c)
	}
	return c, err
}

// Put takes in a file, in the place of one of its name.
func (c *Contents) Put(file, sum string) {
	at, found := slices.BinarySearchFunc(*c, file, func(x Content, file string) int { return strings.Compare(x.File, file) })
	if found {
		(*c)[at].SHA256 = sum
		return
	}
	*c = slices.Insert(*c, at, Content{file, sum})
}

func (c Contents) fileSum(file string) string {
	for _, x := range c {
		if x.File == file {
			return x.SHA256
		}
	}
	return ""
}

// Differences names the files that are not what they were, in short; "" where there are none.
func (c Contents) Differences(was Contents) string { return c.differences(was, true) }

// Changed is Differences of the files that both have.
func (c Contents) Changed(was Contents) string { return c.differences(was, false) }

func (c Contents) differences(was Contents, all bool) string {
	var out []error
	for _, x := range c {
		if old := was.fileSum(x.File); old == "" && all {
			out = append(out, fmt.Errorf("%.200q is new", x.File))
		} else if old != "" && old != x.SHA256 {
			out = append(out, fmt.Errorf("%.200q has SHA-256 %.12s…, want %.12s…", x.File, x.SHA256, old))
		}
	}
	for _, x := range was {
		if all && c.fileSum(x.File) == "" {
			out = append(out, fmt.Errorf("%.200q is gone", x.File))
		}
	}
	if out == nil {
		return ""
	}
	return strings.ReplaceAll(listing.JoinErrors(out).Error(), "\n", "; ")
}

// Since compares them with those that a run was begun with. A difference is ErrDataChanged and names
// the files, or is a note where it is accepted. That an earlier version has recorded none is a note, too.
func (c Contents) Since(was Contents, accept bool) (note string, err error) {
	if was == nil {
		if len(c) > 0 {
			note = "the run was begun by a version that did not record what its data were: they are not compared"
		}
		return note, nil
	}
	switch changes := c.Differences(was); {
	case changes == "":
		return "", nil
	case accept:
		return fmt.Sprintf("%v, which is accepted: %s", ErrDataChanged, changes), nil
	default:
		return "", fmt.Errorf("%w: %s", ErrDataChanged, changes)
	}
}

// Agree is an error that names the files unless all ranks have the same. All ranks call it.
func (c Contents) Agree(ctx context.Context, g collective.Group) error {
	own, err := json.Marshal(c)
	if err != nil {
		return err
	}
	all, err := collective.GatherBytes(ctx, g, own)
	if err != nil {
		return err
	}
	for rank, text := range all {
		if bytes.Equal(text, all[0]) {
			continue
		}
		var first, other Contents
		if err := errors.Join(json.Unmarshal(all[0], &first), json.Unmarshal(text, &other)); err != nil {
			return fmt.Errorf("what rank %d has sent: %w", rank, err)
		}
		return fmt.Errorf("rank %d does not have the data of rank 0: %s", rank, other.Differences(first))
	}
	return nil
}

// fileSum is the SHA-256 of a file.
func fileSum(ctx context.Context, path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("hash data: %w", err)
	}
	defer f.Close()
	h, part := sha256.New(), make([]byte, 1<<20)
	for {
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		n, err := f.Read(part)
		h.Write(part[:n])
		if err == io.EOF {
			return fmt.Sprintf("%x", h.Sum(nil)), nil
		}
		if err != nil {
			return "", fmt.Errorf("hash data: %w", err)
		}
	}
}
