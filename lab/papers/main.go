// Papers writes the configurations of the papers' tables and figures, one file for each entry of papers.yaml:
//
//	go -C lab run ./papers [FOLDER]   # ../out/papers
//
// A file begins with the note of its entry; the rest is what "evict eval --config" reads.
package main

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v3"
)

//go:embed papers.yaml
var table []byte

func main() {
	folder := "../out/papers"
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	if err := write(folder); err != nil {
		fmt.Fprintln(os.Stderr, "papers:", err)
		os.Exit(1)
	}
}

func write(folder string) error {
	var entries map[string]map[string]any
	if err := yaml.Unmarshal(table, &entries); err != nil {
		return fmt.Errorf("papers.yaml: %w", err)
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for name, entry := range entries {
		note, ok := entry["note"].(string)
		if !ok {
			return fmt.Errorf("papers.yaml: %s: got no note, want one", name)
		}
		delete(entry, "note")
		rest, err := yaml.Marshal(entry)
		if err != nil {
			return fmt.Errorf("papers.yaml: %s: %w", name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, name+".yaml"), append(comment(note), rest...), 0o644); err != nil {
			return err
		}
	}
	fmt.Printf("%d configurations in %s\n", len(entries), folder)
	return nil
}

// comment is a text as lines of a comment, of 100 bytes or one word.
func comment(text string) []byte {
	var out strings.Builder
	width := 0
	for word := range strings.FieldsSeq(text) {
		if width == 0 || width+1+len(word) > 100 {
			if width > 0 {
				out.WriteByte('\n')
			}
			out.WriteByte('#')
			width = 1
		}
		out.WriteString(" " + word)
		width += 1 + len(word)
	}
	return []byte(out.String() + "\n")
}
