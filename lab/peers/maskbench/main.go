// Maskbench counts what structured outputs make of JSON schemas that people use: MaskBench's, of
// JSONSchemaBench (Geng et al. 2025, arXiv:2501.10868), which has 11,305 with instances that are valid or are not.
//
//	git clone --depth 1 https://github.com/guidance-ai/jsonschemabench
//	go -C lab run ./peers/maskbench jsonschemabench/maskbench/data
//
// Nothing is fetched, and the data set is not a part of this repository. A schema is taken where it compiles; it passes
// where its valid instances are admitted, too, and the others are not, as the set's own runner counts. Instances
// are written as that runner does, json.dumps with ensure_ascii=False, and once more with their members in the order of the
// schema: one that is not valid may be admitted in neither way. With -samples, random texts of every schema
// are held against another implementation (santhosh-tekuri/jsonschema).
package main

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"glimpse/serving/constraint"
)

// file is one of the set.
type file struct {
	Schema json.RawMessage `json:"schema"`
	Tests  []struct {
		Valid bool            `json:"valid"`
		Data  json.RawMessage `json:"data"`
	} `json:"tests"`
}

// outcome is what came of a file.
type outcome struct {
	name     string
	refused  error
	compiled time.Duration
	slowest  time.Duration // instance
	counts   map[string]int
	notes    []string
}

// What is counted of a file's instances.
const (
	validAdmitted   = "valid, admitted"
	validReordered  = "valid, admitted in the order of the schema alone"
	validRefused    = "valid, refused"
	invalidRefused  = "invalid, refused"
	invalidAdmitted = "invalid, admitted"
	sampled         = "sampled, valid"
	sampledInvalid  = "sampled, not valid"
	unjudged        = "schemas that the other implementation refuses"
)

var order = []string{validAdmitted, validReordered, validRefused, invalidRefused, invalidAdmitted, sampled, sampledInvalid, unjudged}

func main() {
	every := flag.Int("every", 1, "take every so many-th file")
	from := flag.Int("from", 0, "begin with this file")
	only := flag.String("only", "", "files with this in their names alone")
	samples := flag.Int("samples", 0, "random texts of every schema to validate")
	refused := flag.String("refused", "", "list the files that are refused with an error like this regular expression")
	flag.Parse()
	if flag.NArg() != 1 || *every < 1 {
		fmt.Fprintln(os.Stderr, "usage: maskbench [flags] FOLDER (maskbench/data of github.com/guidance-ai/jsonschemabench)")
		os.Exit(2)
	}
	names, err := filepath.Glob(filepath.Join(flag.Arg(0), "*.json"))
	if err != nil || len(names) == 0 {
		fmt.Fprintf(os.Stderr, "maskbench: got no *.json in %s, want MaskBench's files (%v)\n", flag.Arg(0), err)
		os.Exit(1)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.Contains(name, *only) })
	var picked []string
	for i := *from; i < len(names); i += *every {
		picked = append(picked, names[i])
	}
	report(measureAll(picked, *samples), regexp.MustCompile(*refused), *refused != "")
}

// measureAll is the outcomes in the order of the names.
func measureAll(names []string, samples int) []outcome {
	out := make([]outcome, len(names))
	var wg sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for i := range next {
				out[i] = measure(names[i], samples)
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	wg.Wait()
	return out
}

func measure(name string, samples int) outcome {
	o := outcome{name: filepath.Base(name), counts: make(map[string]int)}
	data, err := os.ReadFile(name)
	var f file
	if err == nil {
		err = json.Unmarshal(data, &f)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "maskbench: %s: %v\n", name, err)
		os.Exit(1)
	}
	begin := time.Now()
	g, err := constraint.Schema(f.Schema, false)
	if o.compiled = time.Since(begin); err != nil {
		o.refused = err
		return o
	}
	positions := memberOrder(f.Schema)
	for i, t := range f.Tests {
		as, sorted := dumps(t.Data, nil), dumps(t.Data, positions)
		begin := time.Now()
		plain := admits(g, as)
		o.slowest = max(o.slowest, time.Since(begin))
		kind := validRefused
		switch reordered := plain || as != sorted && admits(g, sorted); {
		case t.Valid && plain:
			kind = validAdmitted
		case t.Valid && reordered:
			kind = validReordered
		case !t.Valid && reordered:
			kind = invalidAdmitted
		case !t.Valid:
			kind = invalidRefused
		}
		if kind == validRefused || kind == invalidAdmitted {
			o.notes = append(o.notes, fmt.Sprintf("%s: tests/%d: %.400s", kind, i, as))
		}
		o.counts[kind]++
	}
	if samples > 0 {
		o.sample(g, f.Schema, samples)
	}
	return o
}

// vocabulary is a token for each byte and one that ends.
var vocabulary = func() *constraint.Vocabulary {
	tokens := make([][]byte, end+1)
	for b := range end {
		tokens[b] = []byte{byte(b)}
	}
	return constraint.NewVocabulary(tokens, []int32{end})
}()

const end = 256

func admits(g *constraint.Grammar, text string) bool {
	m := constraint.NewMatcher(g, vocabulary)
	for i := range len(text) {
		if m.Accept(int32(text[i])) != nil {
			return false
		}
	}
	return m.Accept(end) == nil
}

var (
	pointer = regexp.MustCompile(`#(/.*?)?(:|\s|$)`)
	quoted  = regexp.MustCompile(`"(\\.|[^"\\])*"|[0-9]+(/[0-9]+)?`)
)

// reason is an error without what belongs to one schema alone.
func reason(err error) string {
	text := strings.TrimPrefix(err.Error(), "JSON schema: ")
	text, _, _ = strings.Cut(text, "\n")
	return quoted.ReplaceAllString(pointer.ReplaceAllString(text, "#"), "…")
}

func report(all []outcome, listed *regexp.Regexp, list bool) {
	reasons := make(map[string]int)
	counts := make(map[string]int)
	var taken, passing int
	var compiled, read []time.Duration
	slow, slowText := outcome{}, outcome{}
	for _, o := range all {
		for _, note := range o.notes {
			fmt.Printf("%s: %s\n", o.name, note)
		}
		if o.compiled > slow.compiled {
			slow = o
		}
		if o.refused != nil {
			reasons[reason(o.refused)]++
			if list && listed.MatchString(o.refused.Error()) {
				fmt.Printf("%s: %v\n", o.name, o.refused)
			}
			continue
		}
		taken++
		if o.counts[validReordered]+o.counts[validRefused]+o.counts[invalidAdmitted] == 0 {
			passing++
		}
		if o.slowest > slowText.slowest {
			slowText = o
		}
		compiled, read = append(compiled, o.compiled), append(read, o.slowest)
		for kind, n := range o.counts {
			counts[kind] += n
		}
	}
	for _, r := range slices.SortedFunc(maps.Keys(reasons), func(a, b string) int {
		return cmp.Or(reasons[b]-reasons[a], strings.Compare(a, b))
	}) {
		fmt.Printf("%6d refused: %s\n", reasons[r], r)
	}
	for _, kind := range order {
		fmt.Printf("%6d %s\n", counts[kind], kind)
	}
	share := func(n int) string {
		return fmt.Sprintf("%d of %d, %.1f%%", n, len(all), 100*float64(n)/float64(len(all)))
	}
	fmt.Printf("taken: %s\npassing: %s\n", share(taken), share(passing))
	fmt.Printf("compiled: median %v, p99 %v, longest %v (%s)\n", quantile(compiled, 0.5), quantile(compiled, 0.99), slow.compiled, slow.name)
	fmt.Printf("an instance read: median %v, p99 %v, longest %v (%s)\n", quantile(read, 0.5), quantile(read, 0.99), slowText.slowest, slowText.name)
}

func quantile(of []time.Duration, q float64) time.Duration {
	if len(of) == 0 {
		return 0
	}
	slices.Sort(of)
	return of[int(q*float64(len(of)-1))]
}
