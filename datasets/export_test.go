package datasets

import (
	"io"
	"path/filepath"
)

// NewPromptReader reads JSONL from r; file stands in its errors and in the IDs of lines
// without one.
func NewPromptReader(file string, r io.Reader) *PromptReader {
	lines := &lineRows{Closer: io.NopCloser(r), lines: newLineReader(file, r), name: filepath.Base(file)}
	return &PromptReader{mappedRows{&RowReader{open: lines, file: sourceFile{path: file}}, new(mapping)}}
}

// ReadPrompts reads all prompts of a source. OpenSource streams them.
func ReadPrompts(path string) ([]Prompt, error) {
	r, err := OpenSource(path, FormatAuto, Fields{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	var all []Prompt
	for {
		p, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
}
