package kvcache

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"sync"

	"glimpse/kernels"
	"glimpse/model"
)

// PrefixCache keeps the keys and values of the first tokens of prompts, none of them evicted, in pages that all
// prompts with the same first tokens share: a tree over token ids (RadixAttention, arXiv:2312.07104). A prompt that
// begins with them copies a layer's pages into its own cache just before the layer runs, and evicts its copy: pages
// are never changed. Prompts of different salts share nothing: neither how long a prompt takes nor what it reuses tells
// of another salt's.
//
// A prompt that runs after pages has the bits of one that runs as a whole where a row's bits depend on the rows
// beside it no more than by the blocks that pages end at. Pairs in groups depend on those that came after them, and
// are not shared; nor is anything of models with recurrent layers, whose states pages do not hold.
type PrefixCache struct {
	limit       int64
	chunk, page int          // tokens of a pass that go through a layer together, and of a page
	holds       []bool       // layers that have keys and values
	files       *prefixFiles // nil: memory alone

	mu    sync.Mutex // guards the rest: a prefix may be looked for on one goroutine while another's prompt runs
	roots map[pageRoot]*page
	clock int64
	bytes int64
}

// pageRoot is what prompts have in common that share pages.
type pageRoot struct {
	salt string
	long bool // frequencies of short and of long prompts differ (Cache.Begin)
}

// page is the pairs of a run of tokens that follows the pages above it.
type page struct {
	above    *page
	tokens   string
	id       [sha256.Size]byte // of all tokens up to its end, where pages are kept in files
	below    map[string]*page  // by their tokens
	pairs    [][]kernels.KV    // [layer][kvHead], without positions
	bytes    int64
	used     int64 // when it was used last
	inUse    int   // prefixes
	complete bool
}

const (
	// blockQueries is the number of queries of a KV head that attention on a processor works on together.
	blockQueries = 64
	// MinRows is the least number of rows that are computed as in any longer prompt, to the bit.
	MinRows = 17
)

// NewPrefixCache returns an empty cache of at most limit bytes for prompts of the model.
func NewPrefixCache(m *model.Model, limit int64) *PrefixCache {
	holds := make([]bool, m.Config.Layers)
	for l := range holds {
		holds[l] = m.Config.HoldsKV(l)
	}
	return &PrefixCache{limit: limit, chunk: m.ChunkRows(), page: BlockRows(&m.Config), holds: holds, roots: make(map[pageRoot]*page)}
}

// BlockRows is a multiple of the rows of a prompt that attention works on together, in every layer: from one that is a multiple of it
// on, rows are computed as in the whole prompt, to the bit, if they are MinRows or more.
func BlockRows(c *model.Config) int {
	at := 1
	for l := range c.Layers {
		rows := max(1, blockQueries*c.KV(l).Heads/c.Heads)
		if rows *= max(1, blockQueries/rows); at%rows != 0 {
			at *= rows
		}
	}
	return at
}

// root is the page above the first ones of a prompt, made where there is none.
func (p *PrefixCache) root(c *Cache, salt string) *page {
	of := pageRoot{salt, c.long}
	if p.roots[of] == nil {
		p.roots[of] = new(page)
		if p.files != nil {
			p.roots[of].id = p.files.rootID(of)
		}
	}
	return p.roots[of]
}

// pageEnd is the end of the page that begins at a token.
func (p *PrefixCache) pageEnd(from int) int {
	chunk := from / p.chunk * p.chunk
	if to := from + p.page; to-chunk <= p.chunk-MinRows {
		return to
	}
	return chunk + p.chunk
}

// Bytes is what the pages take.
func (p *PrefixCache) Bytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bytes
}

// Prefix is what one prompt takes of a PrefixCache, and what it adds.
type Prefix struct {
	of           *PrefixCache
	pages, fresh []*page
	tokens       int // of pages
}

// Read takes the pages that a prompt of a salt begins with, of at most so many tokens, out of their files where Match would
// not find them. It calls pause after each page that it has read, whose error ends it.
func (p *PrefixCache) Read(c *Cache, salt string, tokens []int32, most int, pause func() error) error {
	if p.files == nil || c.dtype.Grouped() {
		return nil
	}
	var held []*page // that nobody lets go of meanwhile
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, g := range held {
			g.inUse--
		}
	}()
	next := func(at *page, key string) (g *page, read bool) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.clock++
		if g = at.below[key]; g == nil {
			g, read = p.fromFile(c, at, key), true
		}
		if g != nil {
			g.used, held = p.clock, append(held, g)
			g.inUse++
		}
		return g, read
	}
	p.mu.Lock()
	at := p.root(c, salt)
	p.mu.Unlock()
	for from, to := 0, p.pageEnd(0); to <= min(most, len(tokens)); from, to = to, p.pageEnd(to) {
		g, read := next(at, keyOf(tokens[from:to]))
		if g == nil || !g.complete {
			break
		}
		if at = g; read {
			if err := pause(); err != nil {
				return err
			}
		}
	}
	return nil
}

// Match finds the longest run of pages that a prompt of a salt begins with, of at most so many tokens, and makes room for
// pages of the rest. Close ends the use of it.
func (p *PrefixCache) Match(c *Cache, salt string, tokens []int32, most int) *Prefix {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clock++
	x, at, from := &Prefix{of: p}, p.root(c, salt), 0
	if c.dtype.Grouped() || slices.ContainsFunc(c.layers, isRecurrent) {
		return x
	}
	for reusing := true; p.pageEnd(from) <= len(tokens); {
		to := p.pageEnd(from)
		key := keyOf(tokens[from:to])
		next := at.below[key]
		if reusing = reusing && next != nil && next.complete && to <= most; reusing {
			x.pages, x.tokens = append(x.pages, next), to
		} else if next == nil {
			if next = p.addPage(c, at, key); next == nil {
				break
			}
			x.fresh = append(x.fresh, next)
		}
		next.used = p.clock
		if slices.Contains(x.fresh, next) || reusing {
			next.inUse++
		} else if !next.complete {
			break // another prompt is adding it
		}
		at, from = next, to
	}
	for _, f := range x.fresh {
		f.pairs = make([][]kernels.KV, c.Layers())
	}
	return x
}

// addPage adds a page without pairs below another; nil where there is no room.
func (p *PrefixCache) addPage(c *Cache, at *page, tokens string) *page {
	g := &page{above: at, tokens: tokens, bytes: int64(len(tokens)/4) * c.TokenBytes()}
	if !p.makeRoom(g.bytes) {
		return nil
	}
	if p.files != nil {
		g.id = idOf(at, tokens)
	}
	if at.below == nil {
		at.below = make(map[string]*page)
	}
	at.below[tokens] = g
	p.bytes += g.bytes
	return g
}

// fromFile is the page that follows another, of its file; nil where there is none.
func (p *PrefixCache) fromFile(c *Cache, at *page, tokens string) *page {
	if p.files == nil {
		return nil
	}
	pairs := p.files.readPage(c, idOf(at, tokens), len(tokens)/4)
	if pairs == nil {
		return nil
	}
	g := p.addPage(c, at, tokens)
	if g != nil {
		g.pairs, g.complete, g.used = pairs, true, p.clock
	}
	return g
}

// makeRoom lets go of the pages that were used longest ago until there is room for so many bytes more.
func (p *PrefixCache) makeRoom(bytes int64) bool {
	for p.bytes+bytes > p.limit {
		var oldest *page
		for _, root := range p.roots {
			root.leaves(func(leaf *page) {
				if leaf.inUse == 0 && leaf.used < p.clock && (oldest == nil || leaf.used < oldest.used) {
					oldest = leaf
				}
			})
		}
		if oldest == nil {
			return false
		}
		p.drop(oldest)
	}
	return true
}

func (p *PrefixCache) drop(leaf *page) {
	delete(leaf.above.below, leaf.tokens)
	p.bytes -= leaf.bytes
}

func (g *page) leaves(f func(*page)) {
	for _, b := range g.below {
		if len(b.below) == 0 {
			f(b)
		} else {
			b.leaves(f)
		}
	}
}

// Len is the number of tokens whose pairs are there.
func (x *Prefix) Len() int { return x.tokens }

// Enter appends the pairs of a layer to that of a cache, which has room for them and is empty: of a layer that holds its
// window alone those that the next row sees.
func (x *Prefix) Enter(c *Cache, layer int) {
	p, from, held := c.pairs(layer), 0, 0
	if w, ok := c.layers[layer].(*windowed); ok && w.slides() {
		held = gone(max(0, x.tokens-w.window+1))
		w.freed = int32(held)
	}
	for _, g := range x.pages {
		n := len(g.tokens) / 4
		if first := max(from, held); first < from+n {
			for i := range p.heads {
				h, pair := &p.heads[i], g.pairs[layer][i]
				p.room.on.Copy(h.k.Rows(first-held, from+n-held), pair.K.Rows(first-from, n))
				p.room.on.Copy(h.v.Rows(first-held, from+n-held), pair.V.Rows(first-from, n))
				h.pos = append(h.pos, Positions(int32(first), from+n-first)...)
			}
		}
		from += n
	}
	c.changed()
}

// TakeLayer copies the pairs of a layer, before any is evicted, into the pages that the prompt adds and that end
// where the layer ends or before, unless they have them: it is called after every chunk, before a window moves on.
func (x *Prefix) TakeLayer(c *Cache, layer int) {
	p := c.pairs(layer)
	if len(p.heads) == 0 {
		return
	}
	for _, g := range x.fresh {
		n, from, held := len(g.tokens)/4, g.from(), p.heads[0].pos
		if g.pairs[layer] != nil || int(held[len(held)-1]) < from+n-1 {
			continue
		}
		from -= int(held[0])
		for i := range p.heads {
			h := &p.heads[i]
			k, v := p.room.on.Alloc(c.dtype, n, p.dim), p.room.on.Alloc(c.dtype.OfValues(), n, p.dim)
			p.room.on.Copy(k, h.k.Rows(from, from+n))
			p.room.on.Copy(v, h.v.Rows(from, from+n))
			g.pairs[layer] = append(g.pairs[layer], kernels.KV{K: k, V: v})
		}
	}
}

// from is the first token of a page.
func (g *page) from() int {
	n := 0
	for a := g.above; a != nil; a = a.above {
		n += len(a.tokens) / 4
	}
	return n
}

// hasLayers tells that the pairs of all layers that hold some were taken.
func (g *page) hasLayers(layers []bool) bool {
	for l, holds := range layers {
		if holds && g.pairs[l] == nil {
			return false
		}
	}
	return true
}

// Close ends the use of the pages. What was added is there for others if all layers were taken.
func (x *Prefix) Close() {
	p := x.of
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range x.pages {
		g.inUse--
	}
	for _, g := range slices.Backward(x.fresh) {
		g.inUse--
		if g.complete = g.hasLayers(p.holds); !g.complete {
			p.drop(g)
		} else if p.files != nil {
			p.files.keepPage(g)
		}
	}
	x.pages, x.fresh = nil, nil
}

func keyOf(tokens []int32) string {
	b := make([]byte, 0, 4*len(tokens))
	for _, id := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(id))
	}
	return string(b)
}
