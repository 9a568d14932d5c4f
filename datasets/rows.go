package datasets

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

// Formats of sources.
const (
	FormatAuto    = "auto"    // by the file's extension
	FormatJSONL   = "jsonl"   // one object a line
	FormatJSON    = "json"    // one array of such objects; a file of either kind is read as the other, too
	FormatCSV     = "csv"     // a header that names the fields, then one row of strings for each; an empty one is null
	FormatTSV     = "tsv"     // the same with tabs
	FormatParquet = "parquet" // columns named as the fields of such objects
	FormatText    = "text"    // a whole file is one object, whose field "text" it is
)

// SourceFormats lists them.
var SourceFormats = []string{FormatAuto, FormatCSV, FormatJSON, FormatJSONL, FormatParquet, FormatText, FormatTSV}

// formatOf is the format that a file's extension means, .gz and .zst after it left out.
func formatOf(path string) string {
	if compression(path) != "" {
		path = strings.TrimSuffix(path, filepath.Ext(path))
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".jsonl", ".ndjson":
		return FormatJSONL
	case ".json":
		return FormatJSON
	case ".csv":
		return FormatCSV
	case ".tsv":
		return FormatTSV
	case ".parquet":
		return FormatParquet
	}
	return FormatText
}

// RowReader streams the rows of a file or folder, in the order of the files' paths.
type RowReader struct {
	format string
	total  []sourceFile
	files  []sourceFile // of them, those that are not opened yet
	open   fileRows     // nil between files
	file   sourceFile   // that is open
	some   bool         // a row of it was read
}

type sourceFile struct {
	path string
	name string // stands in the IDs of its rows
}

// fileRows reads one file. An error other than io.EOF and *RowError ends it.
type fileRows interface {
	next() (Row, error)
	io.Closer
}

// OpenRows opens a file, or all files of a folder. Hidden files are passed over. The
// caller closes it.
func OpenRows(path, format string) (*RowReader, error) {
	format = cmp.Or(format, FormatAuto)
	if !slices.Contains(SourceFormats, format) {
		return nil, fmt.Errorf("open source %s: unknown format %q, want one of: %s", path, format, strings.Join(SourceFormats, ", "))
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	r := &RowReader{format: format}
	if !info.IsDir() {
		r.file = sourceFile{path, filepath.Base(path)}
		r.total = []sourceFile{r.file}
		if r.open, err = openFile(r.file, format); err != nil { // told at once
			return nil, err
		}
		return r, nil
	}
	err = walkFiles(path, func(file, name string) error {
		if strings.EqualFold(filepath.Ext(file), ".arrow") { // beside it lie JSON files that are no rows
			return fmt.Errorf("%s: got %s", path, arrowFile)
		}
		r.files = append(r.files, sourceFile{file, name})
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("open source: %w", err)
	}
	if len(r.files) == 0 {
		return nil, fmt.Errorf("open source %s: %w", path, ErrEmpty)
	}
	r.total = r.files
	return r, nil
}

// walkFiles visits the files below a folder in the order of their names, with the name from there; hidden
// ones it leaves out. The folder and the files may be links, as in a cache of the hub; folders within are not followed.
func walkFiles(folder string, visit func(file, name string) error) error {
	root, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return err
	}
	return filepath.WalkDir(root, func(file string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if strings.HasPrefix(e.Name(), ".") && file != root {
			if e.IsDir() {
				return filepath.SkipDir
			}
			return nil
		}
		if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
			return nil
		}
		name, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		return visit(filepath.Join(folder, name), filepath.ToSlash(name))
	})
}

// Next returns the next row, or io.EOF after the last. Any other error concerns what it
// names: after a *RowError the next row follows, after another the next file.
func (r *RowReader) Next() (Row, error) {
	for {
		if r.open == nil {
			if len(r.files) == 0 {
				return Row{}, io.EOF
			}
			var err error
			r.file, r.files, r.some = r.files[0], r.files[1:], false
			if r.open, err = openFile(r.file, r.format); err != nil {
				r.open = nil
				return Row{}, err
			}
		}
		row, err := r.open.next()
		if err == nil || errors.As(err, new(*RowError)) {
			r.some = true
			return row, err
		}
		closed := r.open.Close()
		r.open = nil
		switch {
		case err != io.EOF:
			return Row{}, err
		case !r.some:
			return Row{}, fmt.Errorf("%s: %w", r.file.path, ErrEmpty)
		case closed != nil:
			return Row{}, closed
		}
	}
}

// Count is the number of rows that Next would return, those that are bad and files that cannot be read among
// them; above 0, most ends the counting there. Files whose format does not tell are read for it: of a pipe, which is read
// once, the number is -1.
func (r *RowReader) Count(most int64) (int64, error) {
	n := int64(0)
	for _, file := range r.total {
		if most > 0 && n >= most {
			return most, nil
		}
		format := r.format
		if format == FormatAuto {
			format = formatOf(file.path)
		}
		if format == FormatText {
			n++
			continue
		}
		if format == FormatParquet {
			p, err := openParquet(file)
			if err != nil {
				return 0, err
			}
			n += p.opened.NumRows()
			if err := p.Close(); err != nil {
				return 0, err
			}
			continue
		}
		if info, err := os.Stat(file.path); err != nil || !info.Mode().IsRegular() {
			return -1, err
		}
		more := &RowReader{format: r.format, files: []sourceFile{file}}
		for most <= 0 || n < most {
			if _, err := more.Next(); err == io.EOF {
				break
			}
			n++
		}
		if err := more.Close(); err != nil {
			return 0, err
		}
	}
	if most > 0 {
		n = min(n, most)
	}
	return n, nil
}

// Close closes the file that is open.
func (r *RowReader) Close() error {
	if r.open == nil {
		return nil
	}
	open := r.open
	r.open, r.files = nil, nil
	return open.Close()
}

func openFile(file sourceFile, format string) (fileRows, error) {
	if format == FormatAuto {
		format = formatOf(file.path)
	}
	switch format {
	case FormatParquet:
		p, err := openParquet(file)
		if err != nil { // not a nil *parquetRows
			return nil, err
		}
		return p, nil
	case FormatText:
		return &textRows{sourceFile: file}, nil
	}
	f, err := openText(file.path)
	if err != nil {
		return nil, err
	}
	switch format {
	case FormatCSV, FormatTSV:
		t, err := newTableRows(f, file, format)
		if err != nil {
			f.Close()
			return nil, err
		}
		return t, nil
	}
	return newJSONRows(f, file), nil
}

// newJSONRows reads one object a line, an array of them, or objects that go over several
// lines, whatever the file's name says.
func newJSONRows(f textFile, file sourceFile) fileRows {
	head, _ := f.Peek(headSize) // its error comes again
	first, _, more := bytes.Cut(bytes.TrimLeft(head, " \t\r\n"), []byte("\n"))
	first = bytes.TrimRight(first, " \t\r")
	array := bytes.HasPrefix(first, []byte("["))
	if !array && !(more && bytes.HasPrefix(first, []byte("{")) && bytes.ContainsAny(first[len(first)-1:], "{[,")) {
		return &lineRows{lines: newLineReader(file.path, f), name: file.name, Closer: f}
	}
	return &arrayRows{sourceFile: file, Closer: f, elements: elements{r: f, array: array}}
}

// lineRows are the lines of a JSONL file.
type lineRows struct {
	io.Closer
	lines *lineReader
	name  string
}

func (l *lineRows) next() (Row, error) {
	o, err := l.lines.nextObject()
	return Row{File: l.lines.file, Number: l.lines.line, unit: "line", name: l.name, object: o}, err
}

// textRows is a file that is one text.
type textRows struct {
	sourceFile
	read bool
}

func (t *textRows) next() (Row, error) {
	if t.read {
		return Row{}, io.EOF
	}
	t.read = true
	f, err := openText(t.path)
	if err != nil {
		return Row{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxLine))
	switch {
	case err != nil:
		return Row{}, fmt.Errorf("%s: %w", t.path, err)
	case len(data) == MaxLine:
		return Row{}, fmt.Errorf("%s: got a text of more than %d bytes, want at most that", t.path, MaxLine-1)
	case !utf8.Valid(data):
		return Row{}, fmt.Errorf("%s: got bytes that are not UTF-8, want text", t.path)
	case len(data) == 0:
		return Row{}, io.EOF
	}
	text, err := json.Marshal(string(data))
	return Row{File: t.path, Number: -1, name: t.name, object: object{"text": text}}, err
}

func (t *textRows) Close() error { return nil }

// arrayRows streams the elements of a JSON array, or objects one after another.
type arrayRows struct {
	sourceFile
	io.Closer
	elements elements
	element  int
}

func (a *arrayRows) next() (Row, error) {
	raw, err := a.elements.nextElement()
	switch {
	case err == io.EOF:
		return Row{}, io.EOF
	case err != nil && !errors.Is(err, errLongElement):
		return Row{}, fmt.Errorf("%s: element %d: %w", a.path, a.element, err)
	}
	row := Row{File: a.path, Number: a.element, unit: "element", name: a.name}
	a.element++
	if err != nil {
		return row, row.Fail(err)
	}
	return row.parseRow(raw)
}
