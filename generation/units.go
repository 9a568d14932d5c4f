package generation

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"glimpse/datasets"
	"glimpse/internal/listing"
	"glimpse/internal/progress"
	"glimpse/jobs"
	"glimpse/model"
)

// unitPrompts is how many prompts of a file, one after the other, are a unit of work.
const unitPrompts = 8

// result is what comes of a unit.
type result struct {
	Pairs    []datasets.Pair `json:"pairs"`
	Unusable int             `json:"unusable,omitempty"` // prompts that were left out
	Bad      int             `json:"bad,omitempty"`      // records that cannot be read, or made a prompt of
	First    string          `json:"first,omitempty"`    // the error of the first of these

	tokens, empty, pairs int // of total results, whose pairs are counted alone
}

// add counts another's.
func (r *result) add(o *result) {
	r.Unusable, r.Bad = r.Unusable+o.Unusable, r.Bad+o.Bad
	r.First = cmp.Or(r.First, o.First)
	for _, p := range o.Pairs {
		r.count(p)
	}
}

func (r *result) count(p datasets.Pair) {
	r.pairs++
	r.tokens += len(p.ResponseIDs)
	if len(p.ResponseIDs) == 0 {
		r.empty++
	}
}

// checkBad is an error where all records were bad.
func (r *result) checkBad(name string) error {
	if r.pairs == 0 && r.Bad > 0 {
		return fmt.Errorf("%s: all of %s are bad; the first: %s", name, listing.Count(r.Bad, "record"), r.First)
	}
	return nil
}

// say tells what has come of a file.
func (r *result) say(log io.Writer, name string) {
	bad := ""
	if r.Bad > 0 {
		bad = fmt.Sprintf("; %s left out, too (--strict stops at the first)", listing.Count(r.Bad, "bad record"))
	}
	fmt.Fprintf(log, "%s: %s, %s, %s, %s left out%s\n", name, listing.Count(r.pairs, "sample"), listing.Count(r.tokens, "response token"), listing.Count(r.empty, "empty response"), listing.Count(r.Unusable, "prompt"), bad)
}

// unit is a run of prompts of a file.
type unit struct {
	number int
	items  []item
	at     int              // of the next one
	open   int              // prompts that are not answered
	pairs  []*datasets.Pair // of those that were given; nil: without an answer
	claim  *jobs.Claim
	result result
}

// units are the prompts of a file that nobody has answered. Pairs calls their methods one at a time.
type units struct {
	*output
	m      *model.Model
	sink   *datasets.PairWriter // of a file that nobody shares; nil: results of units
	last   string               // the ID of the last pair that was there
	before int                  // how many were there
	total  result               // what was there, and where nobody shares the file what comes

	share   jobs.Share[*unit]
	err     error // of the records
	unit    *unit // whose prompts are given
	tokens  int
	bar     *progress.Bar
	bad     badRecords
	notices progress.Notices
	written int           // samples that are stored
	done    map[int]*unit // of a file that nobody shares, by their numbers, after those that are written
	flushed int           // how many of these there are
}

// generate answers the prompts of all units that are free.
func (u *units) generate(ctx context.Context, log io.Writer) error {
	s := u.job
	shards := max(1, s.Shards)
	total := int64(0)
	if s.Samples > 0 {
		total = int64((s.Samples - u.shard + shards - 1) / shards)
	}
	u.bar = progress.New(log, "prompts", total)
	u.bar.Skip(int64(u.before))
	u.bad, u.notices, u.written = badRecords{log: log}, progress.Notices{W: log}, u.before
	records, closeRecords, err := s.stream(u.m)
	if err != nil {
		return err
	}
	defer closeRecords()
	u.share = jobs.Share[*unit]{
		Work: u.work, Units: func(yield func(*unit) bool) { u.each(records, yield) },
		Name: func(x *unit) string { return fmt.Sprintf("%08d", x.number) }, Accept: u.accept,
		// Shards of a folder that others have are left to them; whether those in a bucket live, time will tell.
		Free: s.Shards > 0 && u.path != "",
	}
	defer u.share.Close()
	for more := true; more && err == nil; {
		if s.Responses == "source" {
			err = u.copySource(ctx)
		} else {
			err = Pairs(ctx, u.m, func() (Prompt, error) {
				x, err := u.next(ctx)
				return x.Prompt, err
			}, s.options())
		}
		if more = err == nil && u.share.Left() > 0; more { // some may have been finished, or let go, since the last look
			var claim *jobs.Claim
			if u.unit, claim, more, err = u.share.Next(ctx, false); more {
				u.unit.claim = claim
			}
		}
	}
	u.bar.Done()
	if err == nil && u.work == nil {
		err = u.total.checkBad(u.name)
	}
	return err
}

// each goes over the units of the prompts that follow the last one that is there.
func (u *units) each(records func() (item, error), yield func(*unit) bool) {
	shards, skipping, n := max(1, u.job.Shards), u.last != "", 0
	var x *unit
	for {
		r, err := records()
		if err == io.EOF {
			if skipping {
				u.err = fmt.Errorf("%s: the sample %s that it ended with is not among the prompts", u.name, u.last)
			} else if x != nil {
				yield(x)
			}
			return
		}
		if err != nil {
			u.err = err
			return
		}
		if r.index%shards != u.shard {
			continue
		}
		number := n / unitPrompts
		n++
		if skipping {
			skipping = r.ID != u.last
			continue
		}
		if x != nil && x.number != number {
			if !yield(x) {
				return
			}
			x = nil
		}
		if x == nil {
			x = &unit{number: number}
		}
		x.items = append(x.items, r)
	}
}

// accept takes the result of a unit that another process has.
func (u *units) accept(x *unit, text []byte) (bool, error) {
	var r result
	if err := json.Unmarshal(text, &r); err != nil {
		return false, nil // a crash has damaged it
	}
	u.written += len(r.Pairs)
	u.bar.Add(int64(len(x.items)))
	return true, nil
}

// next is the next prompt: io.EOF after the last, errLater where others have what is left.
func (u *units) next(ctx context.Context) (item, error) {
	for {
		x := u.unit
		if x == nil {
			next, claim, more, err := u.share.Next(ctx, false)
			switch {
			case err != nil:
				return item{}, err
			case u.err != nil:
				return item{}, u.err
			case more:
				next.claim, u.unit = claim, next
				continue
			case u.share.Left() > 0 && !u.share.Free && !u.share.Over():
				return item{}, errLater
			}
			return item{}, io.EOF
		}
		if x.at == len(x.items) {
			u.unit = nil
			if x.open == 0 {
				if err := u.finish(ctx, x); err != nil {
					return item{}, err
				}
			}
			continue
		}
		p := x.items[x.at]
		x.at++
		switch err := p.prepare(ctx, &p); {
		case errors.Is(err, ErrUnusable):
			x.result.Unusable++
			u.bar.Add(1)
		case err != nil && !u.job.Strict && len(u.job.Sources) > 0 && ctx.Err() == nil:
			u.bad.addRecord(p.ID, err)
			if x.result.Bad++; x.result.Bad == 1 {
				x.result.First = promptError(p.ID, err).Error()
			}
			u.bar.Add(1)
		case err != nil:
			return item{}, promptError(p.ID, err)
		default:
			u.notices.Say(p.notices...)
			x.open++
			x.pairs = append(x.pairs, nil)
			slot := len(x.pairs) - 1
			p.Done = func(response []int32) error { return u.answered(ctx, x, slot, &p, response) }
			return p, nil
		}
	}
}

// answered takes the response to a prompt of a unit, before it is cut; nil: there is none.
func (u *units) answered(ctx context.Context, x *unit, slot int, p *item, response []int32) error {
	if x.open--; response == nil && u.job.Responses == "source" {
		x.result.Unusable++
	} else {
		if p.cut != nil {
			response = response[:p.cut(len(response))]
		}
		pair := &datasets.Pair{ID: p.ID, PromptIDs: p.IDs, ResponseIDs: response}
		if x.pairs[slot] = pair; u.job.Responses == "self" {
			pair.Task = p.task
		}
		u.tokens += len(response)
		u.bar.SetText(fmt.Sprintf("%d response tokens", u.tokens))
		u.bar.Add(1)
	}
	if x.open == 0 && u.unit != x {
		return u.finish(ctx, x)
	}
	return nil
}

// finish stores the result of a unit, or writes those that are finished in their order.
func (u *units) finish(ctx context.Context, x *unit) error {
	for _, p := range x.pairs {
		if p != nil {
			x.result.Pairs = append(x.result.Pairs, *p)
		}
	}
	if u.sink == nil {
		text, err := json.Marshal(&x.result)
		if err != nil {
			return err
		}
		u.written += len(x.result.Pairs)
		return x.claim.Finish(ctx, text)
	}
	u.done[x.number] = x
	for x := u.done[u.flushed]; x != nil; x = u.done[u.flushed] {
		for _, p := range x.result.Pairs {
			if err := u.sink.Write(p); err != nil {
				return err
			}
		}
		u.total.add(&x.result)
		delete(u.done, u.flushed)
		u.flushed++
	}
	return nil
}

// copySource takes the answers that the sources give, or the right ones of the synthetic tasks.
func (u *units) copySource(ctx context.Context) error {
	for {
		x, err := u.next(ctx)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err == io.EOF:
			return nil
		case errors.Is(err, errLater):
			err = jobs.Wait(ctx)
		case err == nil:
			err = x.Done(x.source[:min(len(x.source), u.job.MaxNew)])
		}
		if err != nil {
			return err
		}
	}
}
