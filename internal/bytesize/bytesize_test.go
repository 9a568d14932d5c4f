package bytesize

import (
	"encoding/json"
	"testing"
)

func TestParse(t *testing.T) {
	for text, want := range map[string]int64{"24GB": 24e9, "1.5 GiB": 3 << 29, "512MiB": 512 << 20, "7": 7, "3kB": 3000, "9 B": 9} {
		if got, err := Parse(text); err != nil || got != want {
			t.Errorf("%q: %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", "GB", "-1GB", "0", "1TB", "1e30GB", "24gb", "NaN", "1 2GB"} {
		if got, err := Parse(text); err == nil {
			t.Errorf("%q: %d, want an error", text, got)
		}
	}
}

func TestText(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 9_940_000: "9.9 MB", 9_960_000: "10 MB", 999_600: "1.0 MB", 120_400: "120 kB", 2_470_000_000: "2.5 GB", 5e15: "5000 TB"} {
		if got := FormatSize(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
	if got := FormatMemory(3 << 29); got != "1.5 GiB" {
		t.Errorf("%q, want 1.5 GiB", got)
	}
	if got := FormatMemory(1 << 19); got != "0.5 MiB" {
		t.Errorf("%q, want 0.5 MiB", got)
	}
}

func TestSize(t *testing.T) {
	for text, want := range map[string]string{"0": "0", "1GB": "1GB", "1024MiB": "1GiB", "1500MB": "1500MB", "4097": "4097", "1.5GiB": "1536MiB"} {
		var s, again, file Size
		if err := s.Set(text); err != nil || s.String() != want {
			t.Errorf("%q: %v, %v; want %s", text, s, err, want)
		}
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%q: %v of %v, %v", text, again, s, err)
		}
		quoted, _ := json.Marshal(text)
		if err := json.Unmarshal(quoted, &file); err != nil || file != s {
			t.Errorf("%s of a file: %v, %v; want %v", quoted, file, err, s)
		}
		number, _ := json.Marshal(s) // as runs of before have it
		if err := json.Unmarshal(number, &file); err != nil || file != s || number[0] == '"' {
			t.Errorf("%s of a file: %v, %v; want %v", number, file, err, s)
		}
	}
	for _, text := range []string{"", "much", "-1", "1XB"} {
		if err := new(Size).Set(text); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
