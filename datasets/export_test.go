package datasets

import (
	"io"
	"path/filepath"
)

// NewPromptReader reads JSONL from r; file stands in its errors and in the IDs of lines
// without one.
func NewPromptReader(file string, r io.Reader) *PromptReader {
	lines := &lineRows{lines: newLineReader(file, r), name: filepath.Base(file)}
	return &PromptReader{mappedRows{&RowReader{open: lines}, new(mapping)}}
}

// ReadPrompts reads all prompts of a source. OpenSource streams them.
func ReadPrompts(path string) ([]Prompt, error) {
	r, err := OpenSource(path, FormatAuto, Fields{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return collect(r.Next)
}
