package main

import (
	"archive/zip"
	"bytes"
	"encoding/json"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"glimpse/evaluation/inspection"
	"glimpse/model/modeltest"
)

// inspectFiles runs evict inspect and returns its rows, page and arrays (the bytes
// after each header).
func inspectFiles(t *testing.T, args ...string) (rows []inspection.Head, page string, arrays map[string][]byte) {
	t.Helper()
	dir := t.TempDir()
	htmlPath, npzPath := filepath.Join(dir, "page.html"), filepath.Join(dir, "scores.npz")
	out, _, err := execute(t, append([]string{"inspect", "--json", "--html", htmlPath, "--npz", npzPath}, args...)...)
	if err != nil {
		t.Fatal(err)
	}
	var inspected struct{ Heads []inspection.Head }
	if err := json.Unmarshal([]byte(out), &inspected); err != nil {
		t.Fatal(err)
	}
	rows = inspected.Heads
	raw, err := os.ReadFile(htmlPath)
	if err != nil {
		t.Fatal(err)
	}
	archive, err := zip.OpenReader(npzPath)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	arrays = make(map[string][]byte)
	for _, file := range archive.File {
		f, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(f)
		if err != nil {
			t.Fatal(err)
		}
		end := bytes.IndexByte(data, '\n') + 1
		arrays[string(data[bytes.IndexByte(data, '{'):bytes.IndexByte(data, '}')+1])+file.Name] = data[end:]
	}
	return rows, string(raw), arrays
}

var spanPattern = regexp.MustCompile(`<span( class="none")? style="--k:([0-9.]+)" title="(\d+) \(id (\d+)\): kept by (\d+) of (\d+)">([^<]*)</span>`)

// TestInspectFiles: the page shows the prompt's text, every token with the number
// of heads that keep it, and needs nothing else; the archive holds the same and
// the scores.
func TestInspectFiles(t *testing.T) {
	ids := []int32{1, 3, 7, 320, 321, 322, 323, 324, 325, 326, 327, 328, 8, 2, 4, 5, 6}
	list := filepath.Join(t.TempDir(), "ids.txt")
	text := ""
	for _, id := range ids {
		text += strconv.Itoa(int(id)) + " "
	}
	if err := os.WriteFile(list, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, policy := range []string{"snapkv", "lookaheadkv"} {
		rows, page, arrays := inspectFiles(t, "--policy", policy, "--budget", "5", "--token-ids", list, "--set", policy+".kernel=1")
		if external := regexp.MustCompile(`(?i)https?:|src=|<link|@import|url\(`).FindString(page); external != "" {
			t.Errorf("%s: the page refers to other files: %q", policy, external)
		}
		if strings.Contains(page, "ZgotmplZ") {
			t.Errorf("%s: the page holds a value that its template refused", policy)
		}
		spans := spanPattern.FindAllStringSubmatch(page, -1)
		if len(spans) != len(ids) {
			t.Fatalf("%s: %d tokens on the page, want %d", policy, len(spans), len(ids))
		}
		shown := ""
		var counts []byte
		for i, s := range spans {
			count := 0
			for _, r := range rows {
				if slices.Contains(r.Positions, int32(i)) {
					count++
				}
			}
			counts = append(counts, byte(count), 0, 0, 0)
			share, err := strconv.ParseFloat(s[2], 64)
			if want := float64(count) / 16; err != nil || share != want || (s[1] != "") != (count == 0) ||
				s[3] != strconv.Itoa(i) || s[4] != strconv.Itoa(int(ids[i])) || s[5] != strconv.Itoa(count) || s[6] != "16" {
				t.Errorf("%s: token %d is shown as %q, want id %d kept by %d of 16", policy, i, s[0], ids[i], count)
			}
			shown += html.UnescapeString(s[7])
		}
		if !strings.HasPrefix(shown, "<bos> <user> <context>") {
			t.Errorf("%s: the page shows %q", policy, shown)
		}
		if got := arrays["{'descr': '<i4', 'fortran_order': False, 'shape': (17,), }counts.npy"]; !bytes.Equal(got, counts) {
			t.Errorf("%s: counts % x, want % x", policy, got, counts)
		}
		kept := arrays["{'descr': '|b1', 'fortran_order': False, 'shape': (8, 2, 17), }kept.npy"]
		scores := arrays["{'descr': '<f4', 'fortran_order': False, 'shape': (8, 2, 17), }scores.npy"]
		if len(kept) != 16*17 || len(scores) != 16*17*4 {
			t.Fatalf("%s: %d truth values and %d bytes of scores in %d arrays", policy, len(kept), len(scores), len(arrays))
		}
		for i, r := range rows {
			for p := range ids {
				if (kept[i*17+p] == 1) != slices.Contains(r.Positions, int32(p)) {
					t.Errorf("%s: layer %d head %d position %d: kept %d", policy, r.Layer, r.KVHead, p, kept[i*17+p])
				}
			}
			if got := modeltest.F32(scores[i*17*4:][:17*4]); !slices.Equal(got, r.Scores) {
				t.Errorf("%s: layer %d head %d: scores %v, want %v", policy, r.Layer, r.KVHead, got, r.Scores)
			}
		}
	}
}

// TestInspectWithoutScores: a prompt within the budget has none, and markup in a
// prompt stays text.
func TestInspectWithoutScores(t *testing.T) {
	g := modeltest.GoldenNamed(t, "qwen3")
	_, page, arrays := inspectFiles(t, "--model", g.Folder, "--policy", "full", "--budget", "128", "--raw", "--prompt", "a</span><script>alert(1)</script>\nb")
	for name := range arrays {
		if strings.HasSuffix(name, "scores.npy") {
			t.Errorf("the archive holds scores: %s", name)
		}
	}
	if strings.Contains(page, "<script>alert") || strings.Count(page, "<script>") != 1 {
		t.Error("the prompt's markup became the page's")
	}
	shown := ""
	for _, s := range spanPattern.FindAllStringSubmatch(page, -1) {
		shown += html.UnescapeString(s[7])
	}
	if want := "a</span><script>alert(1)</script>↵\nb"; shown != want {
		t.Errorf("the page shows %q, want %q", shown, want)
	}
}

// TestInspectQueries: the conditions of DapQ, arXiv:2603.11564, table 1 and figure 2. Of rows
// that stand where the response does, RoPE turns all alike and changes no cosine.
func TestInspectQueries(t *testing.T) {
	args := []string{"inspect", "--queries", "--example", "summary", "--tokens", "128", "--query-rows", "6", "--query-trials", "3"}
	out, _, err := execute(t, append(args, "--json")...)
	if err != nil {
		t.Fatal(err)
	}
	type mean struct {
		Mean      float64
		Trials    int
		Quartiles []float64
	}
	type similarity struct {
		Content, Position string
		Start, Offset     int
		After             mean `json:"after_rope"`
		Before            mean `json:"before_rope"`
		Layers            []struct {
			After  float64 `json:"after_rope"`
			Before float64 `json:"before_rope"`
		}
	}
	var r struct {
		Schema     string
		Tokens     int
		Response   []int32
		Conditions []similarity
		Offsets    []similarity
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err)
	}
	if r.Schema != "glimpse.queries/1" || r.Tokens != 128 || len(r.Response) != 6 || len(r.Offsets) != 9 {
		t.Fatalf("%s", out)
	}
	found := map[string]similarity{}
	for _, c := range r.Conditions {
		at := c.Content + " " + c.Position
		found[at] = c
		layers := 0.0
		for _, l := range c.Layers {
			layers += l.After / float64(len(c.Layers))
		}
		if len(c.Layers) != 8 || math.Abs(layers-c.After.Mean) > 1e-9 || !slices.IsSorted(c.After.Quartiles) || len(c.After.Quartiles) != 5 ||
			c.After.Mean < c.After.Quartiles[0]-1e-12 || c.After.Mean > c.After.Quartiles[4]+1e-12 {
			t.Errorf("%s: %+v", at, c)
		}
		if c.Position == "same" && (math.Abs(c.After.Mean-c.Before.Mean) > 1e-5 || c.Start != 128 || c.Offset != 0) {
			t.Errorf("%s: %+v, want the same before and after", at, c)
		}
		if drawn := c.Position == "random" || c.Position == "early" || c.Content == "vocabulary" || c.Content == "random" || c.Content == "span"; drawn != (c.After.Trials == 3) {
			t.Errorf("%s: %d trials", at, c.After.Trials)
		}
	}
	if same := found["same same"]; math.Abs(same.After.Mean-1) > 1e-9 {
		t.Errorf("the response is similar to itself by %+v", same)
	}
	// The paper's finding: the position matters more than what is said.
	if position, content := found["fixed same"].After.Mean, found["same first"].After.Mean; !(position > content+0.2) {
		t.Errorf("similarity %v of other words at the position, %v of the response's at another one", position, content)
	}
	if last := r.Offsets[8]; last.Offset != 0 || math.Abs(last.After.Mean-1) > 1e-9 || r.Offsets[0].Start != 0 || r.Offsets[0].After.Mean != found["same first"].After.Mean {
		t.Errorf("offsets %+v", r.Offsets)
	}
	table, _, err := execute(t, append(args, "--query-starts", "0,100,128")...)
	if err != nil || !strings.Contains(table, "CONTENT") || !strings.Contains(table, "-28") || strings.Count(table, "\n") != 13+4+3 {
		t.Errorf("%v\n%s", err, table)
	}
	for want, wrong := range map[string][]string{
		"--queries shows no policy": {"--policy", "snapkv"}, "want at least 1 of each": {"--query-rows", "0"}, "start 5000, want 0 to 4090": {"--query-starts", "5000"},
	} {
		if _, _, err := execute(t, append(args, wrong...)...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", wrong, err, want)
		}
	}
}

// TestInspectSummary: where a file has what is kept, standard output has a line on it and not every position.
func TestInspectSummary(t *testing.T) {
	args := []string{"inspect", "--policy", "snapkv", "--budget", "16", "--example", "section", "--tokens", "128", "--heads", "equal"}
	for _, flag := range []string{"--html", "--npz"} {
		out, _, err := execute(t, append(slices.Clone(args), flag, filepath.Join(t.TempDir(), "file"))...)
		if want := "snapkv keeps 16 of the prompt's 128 KV entries per KV head, 12.5% over 16 KV heads of 8 layers\n"; err != nil || out != want {
			t.Errorf("%s: %v, %d bytes, want %q:\n%.300s", flag, err, len(out), want, out)
		}
	}
	learned, _, err := execute(t, append(slices.Clone(args[:len(args)-2]), "--html", filepath.Join(t.TempDir(), "file"))...)
	if want := "snapkv keeps 12 to 36 of the prompt's 128 KV entries per KV head, 12.5% over 16 KV heads of 8 layers\n"; err != nil || learned != want {
		t.Errorf("budgets that ship: %v, want %q:\n%.300s", err, want, learned)
	}
	adaptive := slices.Clone(args)
	adaptive[2] = "adakv"
	if out, _, err := execute(t, append(adaptive, "--npz", filepath.Join(t.TempDir(), "a.npz"))...); err != nil || !regexp.MustCompile(`^adakv keeps \d+ to \d+ of the prompt's 128 KV entries per KV head, 12\.5% over`).MatchString(out) {
		t.Errorf("adakv: %v: %.300s", err, out)
	}
}

// TestOnePolicy: commands that show one policy refuse a list, and say what takes one, before a model is opened.
func TestOnePolicy(t *testing.T) {
	for _, line := range []string{"inspect --policy snapkv,tova", "run --policy snapkv,tova", "chat --policy snapkv:quest,tova", "inspect --policy all", "run --model no/such --policy snapkv,snapkv(kernel=1)"} {
		if _, _, err := execute(t, append(strings.Fields(line), "--example", "needle")...); err == nil || !strings.Contains(err.Error(), `want one; "evict eval --policy `) {
			t.Errorf("%s: error %v", line, err)
		}
	}
	if _, _, err := execute(t, "run", "--policy", "snapkv(kernel=1)", "--budget", "16", "--example", "section", "--tokens", "64"); err != nil {
		t.Errorf("a policy with options of its own: %v", err)
	}
}
