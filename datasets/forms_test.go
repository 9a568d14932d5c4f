package datasets_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/parquet-go/parquet-go"

	"glimpse/datasets"
)

// utf16Text is text as PowerShell's > writes it.
func utf16Text(order binary.AppendByteOrder, text string) string {
	var b []byte
	for _, u := range utf16.Encode([]rune("\ufeff" + text)) {
		b = order.AppendUint16(b, u)
	}
	return string(b)
}

// outcome is what a source gives: the prompts as ID=TEXT, and the errors.
func outcome(t *testing.T, path string) (got, errs []string) {
	t.Helper()
	r, err := datasets.OpenSource(path, datasets.FormatAuto, datasets.Fields{})
	if err != nil {
		return nil, []string{err.Error()}
	}
	defer r.Close()
	for {
		p, err := r.Next()
		if err == io.EOF {
			return got, errs
		}
		var row *datasets.RowError
		switch {
		case err == nil:
			turns := ""
			for _, m := range p.Messages {
				turns += fmt.Sprintf("{%s %s}", m.Role, m.Content)
			}
			got = append(got, p.ID+"="+p.Text+turns)
		case errors.As(err, &row):
			errs = append(errs, err.Error())
		default:
			return got, append(errs, err.Error())
		}
	}
}

// TestFileForms: a file is read whole whatever wrote it, or what is lost is an error.
func TestFileForms(t *testing.T) {
	two := `{"prompt": "a"}` + "\n" + `{"prompt": "ü"}` + "\n"
	gz := compressed(t, ".gz", two)
	for _, c := range []struct {
		name, file, text string
		want             []string
		errs             []string // parts of the errors, in order
	}{
		{"JSONL with a byte order mark", "f.jsonl", "\ufeff" + two, []string{"f.jsonl:1=a", "f.jsonl:2=ü"}, nil},
		{"array with a byte order mark", "f.json", "\ufeff" + `[{"prompt": "a"}]`, []string{"f.json:0=a"}, nil},
		{"text with a byte order mark", "f.txt", "\ufeffa", []string{"f.txt=a"}, nil},
		{"byte order mark under gzip", "f.jsonl.gz", compressed(t, ".gz", "\ufeff"+two), []string{"f.jsonl.gz:1=a", "f.jsonl.gz:2=ü"}, nil},
		{"UTF-16, little-endian", "f.jsonl", utf16Text(binary.LittleEndian, two), []string{"f.jsonl:1=a", "f.jsonl:2=ü"}, nil},
		{"UTF-16, big-endian", "f.txt", utf16Text(binary.BigEndian, "aü"), []string{"f.txt=aü"}, nil},
		{"UTF-16 without its mark", "f.jsonl", utf16Text(binary.LittleEndian, two)[2:], nil, []string{"f.jsonl: got zero bytes, want text in UTF-8"}},
		{"text in UTF-16 without its mark", "f.txt", utf16Text(binary.LittleEndian, "abc")[2:], nil, []string{"f.txt: got zero bytes"}},
		{"CRLF", "f.jsonl", strings.ReplaceAll(two, "\n", "\r\n"), []string{"f.jsonl:1=a", "f.jsonl:2=ü"}, nil},
		{"cut within a line", "f.jsonl", two[:len(two)-3], []string{"f.jsonl:1=a"}, []string{`f.jsonl:2: field "prompt": got the end of the line`}},

		{"array named .jsonl", "f.jsonl", "[\n{\"prompt\": \"a\"},\n{\"prompt\": \"b\"}\n]\n", []string{"f.jsonl:0=a", "f.jsonl:1=b"}, nil},
		{"array on a line, named .jsonl", "f.jsonl", `[{"prompt": "a"}, {"prompt": "b"}]`, []string{"f.jsonl:0=a", "f.jsonl:1=b"}, nil},
		{"JSONL named .json", "f.json", two, []string{"f.json:1=a", "f.json:2=ü"}, nil},
		{"one object named .json", "f.json", `{"prompt": "a"}`, []string{"f.json:1=a"}, nil},
		{"objects over several lines", "f.jsonl", "{\n  \"prompt\": \"a } b\"\n}\n{\n  \"prompt\": \"\\\"c\"\n}\n", []string{"f.jsonl:0=a } b", `f.jsonl:1="c`}, nil},
		{"first line cut", "f.jsonl", `{"prompt": "a` + "\n" + `{"prompt": "b"}`, []string{"f.jsonl:2=b"}, []string{"f.jsonl:1: "}},
		{"bad element", "f.json", `[{"prompt": "a"}, {"prompt" "b"}, {"prompt": "c"},]`, []string{"f.json:0=a", "f.json:2=c"}, []string{"f.json: element 1: ", "f.json: element 3: got nothing, want a JSON object"}},
		{"array cut", "f.json", `[{"prompt": "a"}, {"prompt": "]`, []string{"f.json:0=a"}, []string{"f.json: element 1: got the end of the file"}},
		{"two arrays", "f.json", `[{"prompt": "a"}] [{"prompt": "b"}]`, []string{"f.json:0=a"}, []string{"got '[' after the end of the list"}},
		{"junk between objects", "f.json", "{\n\"prompt\": \"a\"}\nb", []string{"f.json:0=a"}, []string{"f.json: element 1: got 'b', want an object"}},

		{"CSV", "f.csv", "id,prompt,note\n1,\"a, \"\"b\"\"\nc\",\n,d,x\n", []string{"1=a, \"b\"\nc", "f.csv:4=d"}, nil},
		{"CSV of a spreadsheet", "f.csv", "\ufeffprompt;id\r\na, b;x\r\n", []string{"x=a, b"}, nil},
		{"CSV of pandas with its index", "f.csv", ",prompt\n0,a\n1,b\n", []string{"f.csv:2=a", "f.csv:3=b"}, nil},
		{"TSV", "f.tsv", "prompt\tid\na, b; c\tx\n", []string{"x=a, b; c"}, nil},
		{"CSV with rows cut and torn", "f.csv", "prompt,id\na,x\nb\nc\"d,y\ne,z\n\"f", []string{"x=a", "z=e"}, []string{"f.csv:3: got 1 fields, want 2", `f.csv:4: line 4, column 2: bare "`, "f.csv:6: "}},
		{"CSV in Latin-1", "f.csv", "prompt\n\xfc\nb\n", []string{"f.csv:3=b"}, []string{`f.csv:2: field "prompt": got bytes that are not UTF-8`}},
		{"CSV without rows", "f.csv", "prompt,id\n", nil, []string{"f.csv: got no examples"}},
		{"CSV with a field twice", "f.csv", "prompt,prompt\na,b\n", nil, []string{`f.csv: header: field "prompt": got it twice`}},
		{"empty CSV", "f.csv", "", nil, []string{"f.csv: got no examples"}},
		{"CSV without a prompt", "f.csv", "question,answer\nq,a\n", nil, []string{"f.csv:2: got no prompt, want one of the fields"}},
		{"CSV under gzip", "f.csv.gz", compressed(t, ".gz", "prompt\na\n"), []string{"f.csv.gz:2=a"}, nil},

		{"NaN in a field that is not read", "f.jsonl", `{"prompt": "NaN, \"Infinity", "score": NaN, "m": {"x": [-Infinity, Infinity]}, "id": "i"}`, []string{`i=NaN, "Infinity`}, nil},
		{"NaN in an array", "f.json", `[{"prompt": "a", "score": NaN}]`, []string{"f.json:0=a"}, nil},
		{"NaN within a message", "f.jsonl", `{"messages": [{"role": "user", "content": "a", "logprob": -Infinity}]}`, []string{"f.jsonl:1={user a}"}, nil},
		{"NaN in a field that is read", "f.jsonl", `{"prompt": NaN}`, nil, []string{`f.jsonl:1: field "prompt": got NaN, want a string`}},
		{"infinite id", "f.jsonl", `{"prompt": "a", "id": -Infinity}`, nil, []string{`field "id": got -Infinity, want a string or a whole number`}},
		{"half a NaN", "f.jsonl", `{"prompt": "a", "score": Na}`, nil, []string{`f.jsonl:1: field "score": at byte`}},

		{"id that is a whole float", "f.jsonl", `{"prompt": "a", "id": 1.0}` + "\n" + `{"prompt": "b", "id": 1e3}`, []string{"1=a", "1000=b"}, nil},
		{"large id", "f.jsonl", `{"prompt": "a", "id": 123456789012345678901}`, []string{"123456789012345678901=a"}, nil},
		{"id that is no whole number", "f.jsonl", `{"prompt": "a", "id": 1.5}`, nil, []string{`field "id": got 1.5, want a string or a whole number`}},
		{"blank prompts", "f.jsonl", `{"prompt": " "}` + "\n" + `{"text": "\n"}`, nil, []string{`field "prompt": got " ", which is blank`, `field "text": got "\n"`}},

		{"gzip with bytes after its end", "f.jsonl.gz", gz + "junk after the end", []string{"f.jsonl.gz:1=a", "f.jsonl.gz:2=ü"}, []string{"got other bytes after the end of the compressed data"}},
		{"two gzip members", "f.jsonl.gz", gz + compressed(t, ".gz", `{"prompt": "c"}`), []string{"f.jsonl.gz:1=a", "f.jsonl.gz:2=ü", "f.jsonl.gz:3=c"}, nil},
		{"zstd with bytes after its end", "f.jsonl.zst", compressed(t, ".zst", two) + "junk after the end", []string{"f.jsonl.zst:1=a", "f.jsonl.zst:2=ü"}, []string{"got other bytes after the end"}},
		{"gzip cut", "f.jsonl.gz", gz[:len(gz)-9], []string{"f.jsonl.gz:1=a", "f.jsonl.gz:2=ü"}, []string{"the file is cut short"}},
		{"gzip by another name", "f.jsonl", gz, nil, []string{"f.jsonl: got gzip data, want text; prompts in it are read where the name ends in .gz"}},
		{"spreadsheet", "f.xlsx", "PK\x03\x04 and more", nil, []string{"f.xlsx: got a ZIP archive"}},
		{"Git LFS pointer", "f.jsonl", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n", nil, []string{"f.jsonl: a Git LFS pointer"}},
		{"Git LFS pointer as text", "f.txt", "version https://git-lfs.github.com/spec/v1\noid sha256:00\n", nil, []string{"f.txt: a Git LFS pointer"}},
		{"Arrow stream", "f.arrow", "\xff\xff\xff\xff\x10\x00\x00\x00", nil, []string{`f.arrow: got an Arrow file of the library datasets, want Parquet: datasets.load_from_disk("FOLDER").to_parquet("data.parquet")`}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, errs := outcome(t, write(t, filepath.Join(t.TempDir(), c.file), c.text))
			if !slices.Equal(got, c.want) {
				t.Errorf("got %q\nwant %q", got, c.want)
			}
			if len(errs) != len(c.errs) {
				t.Fatalf("errors %q, want %d", errs, len(c.errs))
			}
			for i, part := range c.errs {
				if !strings.Contains(errs[i], part) {
					t.Errorf("error %s\nwant %q in it", errs[i], part)
				}
			}
		})
	}
}

// TestSavedToDisk: a folder that datasets' save_to_disk wrote is refused as a whole, not
// file by file.
func TestSavedToDisk(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"dataset_dict.json": `{"splits": ["train"]}`, "train/state.json": `{"_split": null}`, "train/data-00000-of-00001.arrow": "\xff\xff\xff\xff"} {
		write(t, filepath.Join(dir, name), text)
	}
	for _, path := range []string{dir, filepath.Join(dir, "train")} {
		got, errs := outcome(t, path)
		if len(got) > 0 || len(errs) != 1 || !strings.Contains(errs[0], "to_parquet(") || strings.Contains(errs[0], "\n") {
			t.Errorf("%s: got %q, errors %q, want one line that says to_parquet", path, got, errs)
		}
	}
}

// TestEmptyParquet: no rows are no rows, however many row groups hold them.
func TestEmptyParquet(t *testing.T) {
	type row struct {
		Prompt string `parquet:"prompt"`
	}
	path := filepath.Join(t.TempDir(), "f.parquet")
	if err := parquet.WriteFile(path, []row{}); err != nil {
		t.Fatal(err)
	}
	if _, errs := outcome(t, path); len(errs) != 1 || !strings.Contains(errs[0], "got no examples") {
		t.Errorf("errors %q, want that there are no examples", errs)
	}
	// pyarrow writes a row group without rows.
	data, err := os.ReadFile(filepath.Join("testdata", "empty.parquet"))
	if err != nil {
		t.Fatal(err)
	}
	if _, errs := outcome(t, write(t, path, string(data))); len(errs) != 1 || !strings.HasSuffix(errs[0], "f.parquet: got no examples, want at least one") {
		t.Errorf("pyarrow's: errors %q, want that there are no examples", errs)
	}
}

// FuzzFiles: whatever a file holds, its rows are objects that can be read, its errors name
// the file, and the reading ends.
func FuzzFiles(f *testing.F) {
	for _, seed := range []struct{ ext, text string }{
		{"csv", "id,prompt\n1,\"a\nb\"\n2\n\"c"}, {"csv", "\ufeffprompt;id\r\na;\r\n"}, {"tsv", "prompt\tid\na\t1\n"},
		{"json", "[\n{\"a\": NaN}, {\"b\": [-Infinity, \"]\"]},]"}, {"jsonl", "[{}] x"}, {"json", "{\n\"a\": \"\\\"}\"\n}\n{\n}"},
		{"jsonl", "\ufeff{\"a\": 1}\n{\"a\""}, {"jsonl", utf16Text(binary.LittleEndian, "{\"a\": \"ü\"}\n")}, {"txt", utf16Text(binary.BigEndian, "ü") + "\xd8"},
		{"txt", "a\x00"}, {"gz", "\x1f\x8b"}, {"arrow", "\xff\xff\xff\xff"}, {"xlsx", "PK\x03\x04"},
	} {
		f.Add(seed.ext, seed.text)
	}
	f.Fuzz(func(t *testing.T, ext, text string) {
		if !slices.Contains([]string{"csv", "tsv", "json", "jsonl", "txt", "gz", "arrow", "xlsx"}, ext) || len(text) > 1<<16 {
			return
		}
		path := filepath.Join(t.TempDir(), "f."+ext)
		if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
		r, err := datasets.OpenRows(path, datasets.FormatAuto)
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v does not name the file", err)
			}
			return
		}
		defer r.Close()
		for n := 0; ; n++ {
			row, err := r.Next()
			if err == io.EOF {
				return
			}
			if n > len(text) {
				t.Fatalf("%d rows of %d bytes", n, len(text))
			}
			if err != nil && !strings.Contains(err.Error(), path) {
				t.Fatalf("error %v does not name the file", err)
			}
			if err == nil && row.File != path {
				t.Fatalf("row of %q", row.File)
			}
			_, _ = row.Texts("a")
			_, _ = row.Text("prompt")
		}
	})
}

// TestPairsOfWindows: a pair file that an editor or PowerShell wrote anew keeps its header and its
// checks.
func TestPairsOfWindows(t *testing.T) {
	const pair = `{"id":"a","prompt_ids":[1],"response_ids":[2]}`
	text := headerText + "\r\n" + pair + "\r\n"
	for name, file := range map[string]string{"byte order mark": "\ufeff" + text, "UTF-16": utf16Text(binary.LittleEndian, text)} {
		r, err := datasets.NewPairReader("p", strings.NewReader(file))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p, err := r.Next(); err != nil || p.ID != "a" {
			t.Errorf("%s: %+v (%v)", name, p, err)
		}
	}
}
