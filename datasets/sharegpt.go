package datasets

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// shareGPTRoles are the speakers of ShareGPT files by the names that occur.
var shareGPTRoles = map[string]string{
	"human": "user", "user": "user", "gpt": "assistant", "chatgpt": "assistant", "assistant": "assistant", "model": "assistant",
	"bard": "assistant", "bing": "assistant", "system": "system",
}

// parseConversation reads both ShareGPT variants.
func parseConversation(o object, form PromptForm) ([]Message, error) {
	var items []json.RawMessage
	if err := o.decode(string(form), "an array of objects", &items); err != nil {
		return nil, err
	}
	var out []Message
	for i, item := range items {
		fields, err := parseObject(item)
		if err != nil {
			return nil, fmt.Errorf("field %q: element %d: %w", form, i, err)
		}
		fail := func(err error) error { return fmt.Errorf("field %q: element %d: %w", form, i, err) }
		if form == formConversation {
			var human, assistant string
			if err := fields.decodeAll([]field{{"human", "a string", &human}, {"assistant", "a string", &assistant}}); err != nil {
				return nil, fail(err)
			}
			out = append(out, Message{"user", human}, Message{"assistant", assistant})
			continue
		}
		var from string
		var m Message
		if err := fields.decodeAll([]field{{"from", "a string", &from}, {"value", "a string", &m.Content}}); err != nil {
			return nil, fail(err)
		}
		var ok bool
		if m.Role, ok = shareGPTRoles[from]; !ok {
			return nil, fail(fmt.Errorf(`field "from": got %q, want human, gpt or system`, from))
		}
		out = append(out, m)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("field %q: got no messages, want at least one", form)
	}
	return out, nil
}

// Formats of prompt sources.
const (
	FormatAuto    = "auto"    // by the file's extension
	FormatJSONL   = "jsonl"   // one object a line
	FormatJSON    = "json"    // one array of such objects
	FormatParquet = "parquet" // columns named as the fields of such objects
	FormatText    = "text"    // a whole file is one text
)

// SourceFormats lists them.
var SourceFormats = []string{FormatAuto, FormatJSON, FormatJSONL, FormatParquet, FormatText}

// formatOf is the format that a file's extension means.
func formatOf(path string) string {
	switch strings.ToLower(filepath.Ext(path)) {
	case ".jsonl", ".ndjson":
		return FormatJSONL
	case ".json":
		return FormatJSON
	case ".parquet":
		return FormatParquet
	}
	return FormatText
}

// Records streams prompts of a source.
type Records interface {
	// Next returns the next prompt, or io.EOF after the last.
	Next() (Prompt, error)
	Close() error
}

// OpenSource opens a file, or all files of a folder in the order of their paths, in
// any format. Hidden files are passed over. The caller closes it.
func OpenSource(path, format string) (Records, error) {
	if !slices.Contains(SourceFormats, format) {
		return nil, fmt.Errorf("open source %s: unknown format %q, want one of: %s", path, format, strings.Join(SourceFormats, ", "))
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	if !info.IsDir() {
		return openRecords(path, format, filepath.Base(path))
	}
	f := &folderRecords{root: path, format: format}
	err = filepath.WalkDir(path, func(name string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") && name != path {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if e.Type().IsRegular() {
			f.files = append(f.files, name)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	if len(f.files) == 0 {
		return nil, fmt.Errorf("open source %s: %w", path, ErrEmpty)
	}
	return f, nil
}

// folderRecords reads file after file.
type folderRecords struct {
	root, format string
	files        []string
	open         Records
}

func (f *folderRecords) Next() (Prompt, error) {
	for {
		if f.open == nil {
			if len(f.files) == 0 {
				return Prompt{}, io.EOF
			}
			name, err := filepath.Rel(f.root, f.files[0])
			if err != nil {
				return Prompt{}, err
			}
			if f.open, err = openRecords(f.files[0], f.format, filepath.ToSlash(name)); err != nil {
				return Prompt{}, err
			}
			f.files = f.files[1:]
		}
		p, err := f.open.Next()
		if err != io.EOF {
			return p, err
		}
		err = f.open.Close()
		f.open = nil
		if err != nil {
			return Prompt{}, err
		}
	}
}

func (f *folderRecords) Close() error {
	if f.open == nil {
		return nil
	}
	return f.open.Close()
}

// openRecords opens one file; name stands in the IDs of its prompts.
func openRecords(path, format, name string) (Records, error) {
	if format == FormatAuto {
		format = formatOf(path)
	}
	switch format {
	case FormatParquet:
		return openParquet(path, name)
	case FormatText:
		return &textRecord{path: path, name: name}, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	if format == FormatJSON {
		return newArrayRecords(f, path, name)
	}
	r := NewPromptReader(path, f)
	r.closer = f
	return r, nil
}

// textRecord is a file that is one text.
type textRecord struct {
	path, name string
	read       bool
}

func (t *textRecord) Next() (Prompt, error) {
	if t.read {
		return Prompt{}, io.EOF
	}
	t.read = true
	f, err := os.Open(t.path)
	if err != nil {
		return Prompt{}, fmt.Errorf("open source: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxLine))
	switch {
	case err != nil:
		return Prompt{}, fmt.Errorf("%s: %w", t.path, err)
	case len(data) == MaxLine:
		return Prompt{}, fmt.Errorf("%s: got a text of more than %d bytes, want at most that", t.path, MaxLine-1)
	case !utf8.Valid(data):
		return Prompt{}, fmt.Errorf("%s: got bytes that are not UTF-8, want text", t.path)
	case strings.TrimSpace(string(data)) == "":
		return Prompt{}, fmt.Errorf("%s: %w", t.path, ErrEmpty)
	}
	return Prompt{ID: t.name, Form: FormText, Text: string(data)}, nil
}

func (t *textRecord) Close() error { return nil }

// arrayRecords streams a JSON array of objects.
type arrayRecords struct {
	file    *os.File
	d       *json.Decoder
	path    string
	name    string
	element int
}

func newArrayRecords(f *os.File, path, name string) (Records, error) {
	d := json.NewDecoder(bufio.NewReader(f))
	if t, err := d.Token(); err != nil || t != json.Delim('[') {
		f.Close()
		return nil, fmt.Errorf("%s: want a JSON array of objects; files with one object a line are named .jsonl", path)
	}
	return &arrayRecords{file: f, d: d, path: path, name: name}, nil
}

func (a *arrayRecords) Next() (Prompt, error) {
	if !a.d.More() {
		if _, err := a.d.Token(); err != nil {
			return Prompt{}, fmt.Errorf("%s: after element %d: %w", a.path, a.element, syntaxError(a.d, err))
		}
		if a.element == 0 {
			return Prompt{}, fmt.Errorf("%s: %w", a.path, ErrEmpty)
		}
		return Prompt{}, io.EOF
	}
	var raw json.RawMessage
	err := a.d.Decode(&raw)
	if err != nil {
		return Prompt{}, fmt.Errorf("%s: element %d: %w", a.path, a.element, syntaxError(a.d, err))
	}
	p, err := parseRecord(raw, a.name, a.element)
	if err != nil {
		return Prompt{}, fmt.Errorf("%s: element %d: %w", a.path, a.element, err)
	}
	a.element++
	return p, nil
}

func (a *arrayRecords) Close() error { return a.file.Close() }

// parseRecord reads an object; one without an ID is called after its place.
func parseRecord(raw []byte, name string, at int) (Prompt, error) {
	if len(raw) >= MaxLine {
		return Prompt{}, fmt.Errorf("got an object of %d bytes, want less than %d", len(raw), MaxLine)
	}
	o, err := parseObject(raw)
	if err != nil {
		return Prompt{}, err
	}
	p, err := parsePrompt(o)
	if p.ID == "" {
		p.ID = fmt.Sprintf("%s:%d", name, at)
	}
	return p, err
}
