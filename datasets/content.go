package datasets

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"

	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"glimpse/internal/modelfile"
)

// headSize is how much of a file tells what it is: more than a header line of a table.
const headSize = 64 << 10

// binaryFormats are files that are not text, by their first bytes.
var binaryFormats = []struct{ magic, want string }{
	{"\x1f\x8b", "gzip data, want text; prompts in it are read where the name ends in .gz"},
	{"\x28\xb5\x2f\xfd", "Zstandard data, want text; prompts in it are read where the name ends in .zst"},
	{"PAR1", "a Parquet file, want text; prompts in it are read where the name ends in .parquet"},
	{"ARROW1", arrowFile},
	{"PK\x03\x04", "a ZIP archive (.xlsx is one, too), want text: JSONL, JSON, CSV or TSV"},
}

// arrowFile says what to do about the files of datasets' save_to_disk and of its cache.
// The Arrow reader would add 7 MB to each program.
const arrowFile = `an Arrow file of the library datasets, want Parquet: datasets.load_from_disk("FOLDER").to_parquet("data.parquet") converts it`

// textFile is a file's content as textReader gives it.
type textFile struct {
	*bufio.Reader
	closer io.Closer
}

func (f textFile) Close() error { return f.closer.Close() }

// openText opens a file, decompressed as it is read.
func openText(path string) (textFile, error) {
	f, err := openContent(path)
	if err != nil {
		return textFile{}, fmt.Errorf("open source: %w", err)
	}
	r, err := textReader(f)
	if err != nil {
		f.Close()
		return textFile{}, fmt.Errorf("%s: %w", path, err)
	}
	return textFile{r, f}, nil
}

// textReader gives r as UTF-8 without a byte order mark, decoded from UTF-16 where the mark
// says so. What is no text is an error.
func textReader(r io.Reader) (*bufio.Reader, error) {
	raw := bufio.NewReaderSize(r, headSize)
	head, _ := raw.Peek(512) // its error comes again
	for _, f := range binaryFormats {
		if bytes.HasPrefix(head, []byte(f.magic)) {
			return nil, errors.New("got " + f.want)
		}
	}
	// A stream of Arrow: a mark, and the length of its first message, of less than 16 MB.
	if len(head) > 7 && bytes.HasPrefix(head, []byte("\xff\xff\xff\xff")) && head[7] == 0 {
		return nil, errors.New("got " + arrowFile)
	}
	if err := modelfile.Pointer(head); err != nil {
		return nil, err
	}
	marked := bytes.HasPrefix(head, []byte("\xff\xfe")) || bytes.HasPrefix(head, []byte("\xfe\xff"))
	switch {
	case !marked && bytes.IndexByte(head, 0) >= 0:
		return nil, errors.New("got zero bytes, want text in UTF-8, or in UTF-16 with a byte order mark")
	case !marked && !bytes.HasPrefix(head, []byte("\xef\xbb\xbf")):
		return raw, nil
	}
	return bufio.NewReaderSize(transform.NewReader(raw, unicode.BOMOverride(transform.Nop)), headSize), nil
}
