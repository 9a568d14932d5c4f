package jieba

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth bounds the recursion; the files of jieba have two levels.
const maxDepth = 4

// parseDict reads the first dictionary of a Python source file whose keys are
// strings and whose values are numbers or such dictionaries again, and hands over
// every number with the keys that lead to it. keys is only valid during the call.
// Such a dictionary is JSON but for its quotes.
func parseDict(src []byte, visit func(keys []string, v float64) error) error {
	begin := bytes.IndexByte(src, '{')
	if begin < 0 {
		return fmt.Errorf("no dictionary")
	}
	text := bytes.ReplaceAll(src[begin:], []byte("'"), []byte(`"`))
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true)) // Python takes the last
	if err := readDict(d, nil, visit); err != nil {
		if errors.As(err, new(*jsontext.SyntacticError)) {
			err = fmt.Errorf(`want a dictionary of numbers, with \uXXXX as its only escape: %w`, err)
		}
		return fmt.Errorf("line %d: %w", 1+bytes.Count(src[:begin+int(d.InputOffset())], []byte("\n")), err)
	}
	return nil
}

func readDict(d *jsontext.Decoder, keys []string, visit func(keys []string, v float64) error) error {
	if len(keys) == maxDepth {
		return fmt.Errorf("dictionaries nested deeper than %d", maxDepth)
	}
	if _, err := d.ReadToken(); err != nil { // {
		return err
	}
	for d.PeekKind() != '}' {
		key, err := d.ReadToken()
		if err != nil {
			return err
		}
		path := append(keys, key.String())
		if d.PeekKind() == '{' {
			err = readDict(d, path, visit)
		} else {
			err = readNumber(d, path, visit)
		}
		if err != nil {
			return err
		}
	}
	_, err := d.ReadToken()
	return err
}

func readNumber(d *jsontext.Decoder, keys []string, visit func(keys []string, v float64) error) error {
	t, err := d.ReadToken()
	if err != nil {
		return err
	}
	if t.Kind() != '0' {
		return fmt.Errorf("value of %q: got %s", keys, t)
	}
	v, err := t.Float()
	if err != nil {
		return err
	}
	return visit(keys, v)
}
