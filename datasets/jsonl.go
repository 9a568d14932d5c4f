package datasets

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// MaxLine is the longest line that the readers accept, in bytes: a prompt of two
// million token ids, or as much text.
const MaxLine = 16 << 20

// ErrEmpty is returned for a file without a single example.
var ErrEmpty = errors.New("got no examples, want at least one")

// lineReader reads a JSONL file line by line. Its buffer grows with the longest
// line read so far, never beyond MaxLine.
type lineReader struct {
	reader *bufio.Reader
	broken error // of opening the reader
	file   string
	line   int    // of the last line returned, from 1
	text   []byte // the last line returned, until the next
	long   []byte // a line that the reader's buffer does not hold
}

func newLineReader(file string, r io.Reader) *lineReader {
	text, err := textReader(r)
	return &lineReader{reader: text, broken: err, file: file}
}

// nextObject returns the next line that is not blank as a JSON object, or io.EOF. After a
// *RowError the next line follows.
func (l *lineReader) nextObject() (object, error) {
	for {
		text, err := l.readLine()
		if err != nil {
			return nil, err
		}
		if text = bytes.TrimSpace(text); len(text) == 0 {
			continue
		}
		o, err := parseObject(text)
		if err != nil {
			return nil, l.locate(err)
		}
		l.text = text
		return o, nil
	}
}

// maxSkip is how much of a line is read to come to the next; a file with more of it has no lines.
const maxSkip = 16 * MaxLine

// readLine returns a line, which is valid until the next. One that is too long is read to
// its end and left.
func (l *lineReader) readLine() ([]byte, error) {
	if l.broken != nil {
		return nil, fmt.Errorf("%s: %w", l.file, l.broken)
	}
	l.long = l.long[:0]
	l.line++
	skipped := 0
	for tooLong := false; ; {
		piece, err := l.reader.ReadSlice('\n')
		if skipped += len(piece); skipped > maxSkip {
			return nil, fmt.Errorf("%s:%d: got no line end in %d bytes, want a JSON object a line", l.file, l.line, skipped)
		}
		whole := err == nil || err == io.EOF
		switch {
		case !whole && err != bufio.ErrBufferFull:
			return nil, fmt.Errorf("%s:%d: read: %w", l.file, l.line, err)
		case err == io.EOF && len(piece) == 0 && len(l.long) == 0 && !tooLong:
			l.line--
			return nil, io.EOF
		case tooLong || len(l.long)+len(bytes.TrimRight(piece, "\r\n")) >= MaxLine:
			tooLong, l.long = true, l.long[:0]
		case whole && len(l.long) == 0:
			return piece, nil
		default:
			l.long = append(l.long, piece...)
		}
		switch {
		case whole && tooLong:
			return nil, l.locate(fmt.Errorf("got a line of more than %d bytes, want at most that", MaxLine-1))
		case whole:
			return l.long, nil
		}
	}
}

// locate puts the file and the line before an error.
func (l *lineReader) locate(err error) error { return &RowError{l.file, l.line, "line", err} }

// object holds the fields of a JSON object by their exact names.
type object map[string]json.RawMessage

// parseObject reads one object, see orderedObject.
func parseObject(text []byte) (object, error) {
	o, _, err := orderedObject(text)
	return o, err
}

// orderedObject reads one object, and returns also the names of its fields in their order. It goes
// token by token because json.Unmarshal takes the last of two equal fields and a field in other
// letter case, and replaces broken UTF-8, all in silence. Values may be NaN, Infinity and -Infinity,
// as Python writes them: they are kept as they stand, and are an error of the field that is read.
func orderedObject(text []byte) (o object, names []string, err error) {
	if !utf8.Valid(text) {
		return nil, nil, errors.New("got bytes that are not UTF-8, want a JSON object in UTF-8")
	}
	masked, finite := maskNonFinite(text)
	d := json.NewDecoder(bytes.NewReader(masked))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, nil, fmt.Errorf("got %s, want a JSON object", excerpt(text))
	}
	o = object{}
	for d.More() {
		t, err := d.Token()
		if err != nil {
			return nil, nil, syntaxError(d, err)
		}
		name := t.(string) // the decoder lets nothing else stand before a colon
		if _, ok := o[name]; ok {
			return nil, nil, fmt.Errorf("field %q: got it twice, want it once", name)
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, fmt.Errorf("field %q: %w", name, syntaxError(d, err))
		}
		if !finite {
			end := int(d.InputOffset())
			copy(value, text[end-len(value):end])
		}
		o[name], names = value, append(names, name)
	}
	if _, err := d.Token(); err != nil {
		return nil, nil, syntaxError(d, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, nil, fmt.Errorf("got more text after byte %d, want one JSON object per line", d.InputOffset())
	}
	return o, names, nil
}

// maskNonFinite is text with numbers of the same length in the place of NaN and Infinity; the
// text itself where it has none.
func maskNonFinite(text []byte) (masked []byte, finite bool) {
	words := [][]byte{[]byte("NaN"), []byte("Infinity")}
	if !bytes.Contains(text, words[0]) && !bytes.Contains(text, words[1]) {
		return text, true
	}
	out, quoted := bytes.Clone(text), false
	for i := 0; i < len(out); i++ {
		switch {
		case out[i] == '"':
			quoted = !quoted
		case quoted && out[i] == '\\':
			i++
		case quoted:
		default:
			for _, word := range words {
				if bytes.HasPrefix(out[i:], word) {
					copy(out[i:], "10000000"[:len(word)])
				}
			}
		}
	}
	return out, false
}

func syntaxError(d *json.Decoder, err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fmt.Errorf("got the end of the line after byte %d, want the end of a JSON object", d.InputOffset())
	}
	return fmt.Errorf("at byte %d: %w", d.InputOffset(), err)
}

// decode reads a field that must be there into the value that v points to; want
// describes it: "a string".
func (o object) decode(name, want string, v any) error {
	raw, ok := o[name]
	if !ok {
		return fmt.Errorf("field %q: missing, want %s", name, want)
	}
	err := error(nil)
	if items, ok := v.(*[]json.RawMessage); ok { // what is in them may not be read
		*items, err = elementsOf(raw)
	} else {
		err = json.Unmarshal(raw, v)
	}
	if string(raw) == "null" || err != nil {
		return fmt.Errorf("field %q: got %s, want %s", name, excerpt(raw), want)
	}
	return nil
}

// field is one of the fields that decodeAll reads.
type field struct {
	name, want string
	value      any
	optional   bool
}

// wantText is field.want of a string that is not empty.
const wantText = "text"

func (o object) decodeAll(fields []field) (err error) {
	for _, f := range fields {
		if _, ok := o[f.name]; !ok && f.optional {
			continue
		}
		switch v := f.value.(type) {
		case *[]int32:
			*v, err = o.ids(f.name)
		case *string:
			if f.want == wantText {
				*v, err = o.requiredText(f.name)
				break
			}
			err = o.decode(f.name, f.want, v)
		default:
			err = o.decode(f.name, f.want, v)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// decodeOnly is decodeAll of an object that has no other fields: in our own formats a field that
// nobody reads is a misspelt one.
func (o object) decodeOnly(fields []field) error {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if !slices.Contains(names, name) {
			return fmt.Errorf("field %q: unknown, want only %q", name, names)
		}
	}
	return o.decodeAll(fields)
}

// requiredText reads a string that must be there and not be empty; white space is text.
func (o object) requiredText(name string) (string, error) {
	var s string
	if err := o.decode(name, "a string", &s); err != nil {
		return "", err
	}
	if s == "" {
		return "", fmt.Errorf("field %q: got an empty string, want text", name)
	}
	return s, nil
}

// ids reads an array of token ids that must be there.
func (o object) ids(name string) ([]int32, error) {
	raw, ok := o[name]
	if !ok {
		return nil, fmt.Errorf("field %q: missing, want an array of token ids", name)
	}
	if raw[0] != '[' {
		return nil, fmt.Errorf("field %q: got %s, want an array of token ids", name, excerpt(raw))
	}
	inner := bytes.TrimSpace(raw[1 : len(raw)-1])
	if len(inner) == 0 {
		return []int32{}, nil
	}
	// raw is valid JSON, so whatever is not a whole number, nested arrays and
	// strings with commas included, fails below at its first piece. Unmarshal
	// would read null as 0.
	ids := make([]int32, 0, bytes.Count(inner, []byte{','})+1)
	for piece := range bytes.SplitSeq(inner, []byte{','}) {
		piece = bytes.TrimSpace(piece)
		id, err := strconv.ParseUint(string(piece), 10, 31)
		if err != nil {
			return nil, fmt.Errorf("field %q: element %d: got %s, want a token id", name, len(ids), excerpt(piece))
		}
		ids = append(ids, int32(id))
	}
	return ids, nil
}

// excerpt shows the beginning of a JSON value in an error.
func excerpt(raw []byte) string {
	const most = 40
	if len(raw) == 0 {
		return "nothing"
	}
	if len(raw) <= most {
		return string(raw)
	}
	cut := most
	for !utf8.RuneStart(raw[cut]) {
		cut--
	}
	return string(raw[:cut]) + "…"
}
