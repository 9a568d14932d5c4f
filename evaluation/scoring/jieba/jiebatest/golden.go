// Package jiebatest gives tests a folder like that of the Python package jieba, cut
// down to what some texts need, with the words that jieba finds in them.
package jiebatest

import (
	"compress/gzip"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Golden is what lab/golden/golden_scoring.py wrote.
type Golden struct {
	Dir   string     // for jieba.Open
	Texts [][]string // pairs of texts, each as its words
}

// Read writes the folder from testdata/golden.json.gz of package jieba, whose path
// relative to the test is dir.
func Read(t testing.TB, dir string) Golden {
	t.Helper()
	var stored struct {
		Dict  map[string]int
		Start map[string]float64
		Trans map[string]map[string]float64
		Emit  map[string]map[string]float64
		Texts []string
	}
	f, err := os.Open(filepath.Join(dir, "testdata", "golden.json.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.NewDecoder(z).Decode(&stored); err != nil {
		t.Fatal(err)
	}
	golden := Golden{Dir: t.TempDir()}
	for _, text := range stored.Texts {
		var words []string
		if text != "" {
			words = strings.Split(text, "|")
		}
		golden.Texts = append(golden.Texts, words)
	}
	var dict strings.Builder
	for word, count := range stored.Dict {
		fmt.Fprintf(&dict, "%s %d x\n", word, count)
	}
	write := func(name, content string) {
		t.Helper()
		path := filepath.Join(golden.Dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("dict.txt", dict.String())
	write("finalseg/prob_start.py", "P="+pythonDict(stored.Start))
	write("finalseg/prob_trans.py", "from __future__ import unicode_literals\nP="+pythonDict(stored.Trans))
	write("finalseg/prob_emit.py", "P="+pythonDict(stored.Emit))
	return golden
}

// pythonDict writes a map of numbers or maps as jieba's files have it.
func pythonDict(v any) string {
	var items []string
	item := func(key string, value string) {
		quoted := ""
		for _, r := range key {
			if r < 128 {
				quoted += string(r)
			} else {
				quoted += fmt.Sprintf(`\u%04x`, r)
			}
		}
		items = append(items, fmt.Sprintf("'%s': %s", quoted, value))
	}
	switch v := v.(type) {
	case map[string]float64:
		for key, value := range v {
			item(key, fmt.Sprint(value))
		}
	case map[string]map[string]float64:
		for key, value := range v {
			item(key, pythonDict(value))
		}
	}
	return "{" + strings.Join(items, ",\n ") + "}"
}
