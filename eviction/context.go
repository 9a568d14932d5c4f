package eviction

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"glimpse/model/kvcache"
)

// Context is the beginning of prompts: a document, a system prompt, a conversation. It was run and evicted before anybody knew what
// follows. It does not change. Any number of sessions go on from it ([Session.Context]), each on a copy of its cache.
type Context struct {
	Tokens []int32
	Policy *Configured // it was evicted by; nil of one from a file
	Budget Budget      // it was evicted to
	// FullBytes is what the cache of all tokens has taken; 0 where that is not known.
	FullBytes int64
	keep      Keep // that it was evicted with
	cache     *kvcache.Cache
}

// Bytes is the memory of its cache.
func (c *Context) Bytes() int64 { return c.cache.Bytes() }

// Kept are the positions of the tokens that were kept, by layer and KV head; nil of layers that the policy leaves alone.
func (c *Context) Kept() [][][]int32 {
	p := Prompt{Config: c.cache.Model(), Windows: c.cache.HoldsWindows()}
	out := make([][][]int32, c.cache.Layers())
	for _, l := range p.layers() {
		for h := range c.cache.LayerKVHeads(l) {
			pos := c.cache.Positions(l, h)
			n, _ := slices.BinarySearch(pos, int32(len(c.Tokens))) // behind which learned rows may stay
			out[l] = append(out[l], slices.Clone(pos[:n]))
		}
	}
	return out
}

// begins tells whether tokens begin with the context and go on.
func (c *Context) begins(tokens []int32) bool {
	n := len(c.Tokens)
	return n < len(tokens) && slices.Equal(c.Tokens, tokens[:n])
}

// Compress runs a prompt as the context of a session that begins, and evicts it by its policy and budget. Of the prompt it reads
// Tokens and Progress. The session then has its Context, and goes on from it with a turn of so many tokens more (see Resume). A policy that evicts or chooses while it decodes has
// no contexts: its state belongs to one answer. After an error the session is unusable.
func (s *Session) Compress(ctx context.Context, prompt Prompt, more int) error {
	if err := s.Compresses(); err != nil {
		return err
	}
	if len(s.history) > 0 || s.ready {
		return errors.New("compress: the session has begun, want a new one")
	}
	if err := s.Turn(ctx, Prompt{Tokens: prompt.Tokens, Context: true, Progress: prompt.Progress}); err != nil {
		return err
	}
	c := &Context{Tokens: slices.Clone(prompt.Tokens), Policy: s.policy, Budget: s.Budget, FullBytes: s.FullBytes, keep: s.Keep, cache: s.Cache}
	s.Rest()
	return s.Resume(c, more)
}

// Makes tells that the session's policy has made a context, at a budget that comes to the same.
func (s *Session) Makes(c *Context) bool {
	n := len(c.Tokens)
	return c.Policy == s.policy && c.Budget.Of(n) == s.Budget.Of(n) && c.keep.equal(s.Keep, n)
}

// Adopt makes a context that was read from a file one that the session's policy has made, as whoever reads it knows.
func (s *Session) Adopt(c *Context) { c.Policy, c.Budget, c.keep = s.policy, s.Budget, s.Keep }

// Compresses is an error that says why the session's policy can evict no contexts; nil where it can.
func (s *Session) Compresses() error { return s.policy.Compresses() }

// Compresses is an error that says why contexts cannot be evicted by the policy; nil where they can.
func (n *Configured) Compresses() error {
	if plan := n.smallest(); plan.Decode != nil || plan.Sparse != nil || plan.KeepsAll {
		return fmt.Errorf("policy %s: it decides while it decodes: want one for a context that evicts the prompt alone, such as lookaheadkv or snapkv", n.Name)
	}
	return nil
}

// Resume makes the session one that has run a context alone, on a copy with room for so many tokens more, behind which nothing is
// evicted. After an error it is unusable.
func (s *Session) Resume(c *Context, more int) (err error) {
	s.begin()
	if s.Cache, err = c.cache.ForkFor(more + kvcache.GrowEntries); err != nil {
		return fmt.Errorf("context: %w", err)
	}
	s.Context, s.history, s.turns = c, slices.Clip(c.Tokens), 1
	if rows := int(s.Cache.Next()) - len(c.Tokens); rows > 0 {
		s.stand(len(c.Tokens), rows)
	}
	s.KeepRest()
	return nil
}
