package jieba

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"glimpse/internal/regularfile"
)

// readDict reads the first dictionary of a Python source file into the maps that v points to, which
// have so many keys one in the other, and calls check. Such a dictionary is JSON but for its quotes.
func readDict(path string, keys int, v any, check func() error) error {
	src, err := regularfile.Read(path, maxFile)
	if err != nil {
		return fmt.Errorf("jieba character model: %w", err)
	}
	begin := bytes.IndexByte(src, '{')
	if begin < 0 {
		return fmt.Errorf("jieba character model: %s: no dictionary", path)
	}
	text := bytes.ReplaceAll(src[begin:], []byte("'"), []byte(`"`))
	d := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowDuplicateNames(true)) // Python takes the last
	if err := json.UnmarshalDecode(d, v); err != nil {
		line := 1 + bytes.Count(src[:begin+int(d.InputOffset())], []byte("\n"))
		return fmt.Errorf(`jieba character model: %s: line %d: want numbers of %d keys, nested no deeper, with \uXXXX as the only escape: %w`, path, line, keys, err)
	}
	if err := check(); err != nil {
		return fmt.Errorf("jieba character model: %s: %w", path, err)
	}
	return nil
}
