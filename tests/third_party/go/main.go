// Checks a published audit log with the transparency-log packages of the Go project: the Ed25519 line of the
// checkpoint, the root over all entries, every hash tile, and that the log grew from an older checkpoint.
//
// Usage: check DIR KEYS [OLDER]. Says nothing and ends with 0, or says in one line what is wrong.
package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"
)

const tileHeight = 8

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 2 {
		return fmt.Errorf("usage: check DIR KEYS [OLDER]")
	}
	site := site(args[0])
	keys, err := os.ReadFile(args[1])
	if err != nil {
		return err
	}
	// The packages know Ed25519 keys only: the first line.
	verifier, err := note.NewVerifier(strings.SplitN(string(keys), "\n", 2)[0])
	if err != nil {
		return err
	}
	tree, err := openCheckpoint(filepath.Join(args[0], "checkpoint"), verifier)
	if err != nil {
		return err
	}
	stored, err := site.rebuild(tree)
	if err != nil {
		return err
	}
	if err := site.compareTiles(tree, stored); err != nil {
		return err
	}
	if len(args) < 3 {
		return nil
	}
	older, err := openCheckpoint(args[2], verifier)
	if err != nil {
		return err
	}
	return site.grewFrom(older, tree)
}

// openCheckpoint verifies the note and reads origin, size and root.
func openCheckpoint(path string, verifier note.Verifier) (tlog.Tree, error) {
	var tree tlog.Tree
	msg, err := os.ReadFile(path)
	if err != nil {
		return tree, err
	}
	opened, err := note.Open(msg, note.VerifierList(verifier))
	if err != nil {
		return tree, err
	}
	lines := strings.Split(opened.Text, "\n")
	if len(lines) < 4 || lines[0] != verifier.Name() {
		return tree, fmt.Errorf("not a checkpoint of %s", verifier.Name())
	}
	if tree.N, err = strconv.ParseInt(lines[1], 10, 64); err != nil {
		return tree, err
	}
	tree.Hash, err = tlog.ParseHash(lines[2])
	return tree, err
}

type memory []tlog.Hash

func (m memory) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		if index >= int64(len(m)) {
			return nil, fmt.Errorf("no hash %d", index)
		}
		hashes[i] = m[index]
	}
	return hashes, nil
}

type site string

// The paths of the packages name the tile height, those of the published layout do not.
func (s site) read(tile tlog.Tile) ([]byte, error) {
	path := strings.Replace(tile.Path(), "tile/8/", "tile/", 1)
	if tile.L == -1 {
		path = strings.Replace(path, "tile/data/", "tile/entries/", 1)
	}
	return os.ReadFile(filepath.Join(string(s), filepath.FromSlash(path)))
}

func (s site) Height() int { return tileHeight }

func (s site) ReadTiles(tiles []tlog.Tile) ([][]byte, error) {
	data := make([][]byte, len(tiles))
	for i, tile := range tiles {
		var err error
		if data[i], err = s.read(tile); err != nil {
			return nil, err
		}
	}
	return data, nil
}

func (s site) SaveTiles([]tlog.Tile, [][]byte) {}

// rebuild hashes all entries; their root must be the signed one.
func (s site) rebuild(tree tlog.Tree) (memory, error) {
	var stored memory
	for n := int64(0); n < tree.N; {
		width := tree.N - n
		if width > 1<<tileHeight {
			width = 1 << tileHeight
		}
		bundle, err := s.read(tlog.Tile{H: tileHeight, L: -1, N: n >> tileHeight, W: int(width)})
		if err != nil {
			return nil, err
		}
		for ; width > 0; width-- {
			if len(bundle) < 2 || len(bundle) < 2+int(binary.BigEndian.Uint16(bundle)) {
				return nil, fmt.Errorf("entry %d is cut off", n)
			}
			end := 2 + int(binary.BigEndian.Uint16(bundle))
			hashes, err := tlog.StoredHashes(n, bundle[2:end], stored)
			if err != nil {
				return nil, err
			}
			stored = append(stored, hashes...)
			bundle = bundle[end:]
			n++
		}
		if len(bundle) > 0 {
			return nil, fmt.Errorf("bytes behind entry %d", n-1)
		}
	}
	root, err := tlog.TreeHash(tree.N, stored)
	if err != nil {
		return nil, err
	}
	if root != tree.Hash {
		return nil, fmt.Errorf("the entries have another root")
	}
	return stored, nil
}

func (s site) compareTiles(tree tlog.Tree, stored memory) error {
	for _, tile := range tlog.NewTiles(tileHeight, 0, tree.N) {
		// It names every width that a partial tile may ever have had; a log keeps those of its checkpoints.
		hashes := tree.N >> (tileHeight * uint(tile.L))
		if width := hashes - tile.N<<tileHeight; width < 1<<tileHeight && width != int64(tile.W) {
			continue
		}
		ours, err := tlog.ReadTileData(tile, stored)
		if err != nil {
			return err
		}
		theirs, err := s.read(tile)
		if err != nil {
			return err
		}
		if !bytes.Equal(ours, theirs) {
			return fmt.Errorf("%s differs", tile.Path())
		}
	}
	return nil
}

// grewFrom makes the proof from the published tiles alone and checks it.
func (s site) grewFrom(older, tree tlog.Tree) error {
	if older.N == 0 {
		return nil
	}
	proof, err := tlog.ProveTree(tree.N, older.N, tlog.TileHashReader(tree, s))
	if err != nil {
		return err
	}
	return tlog.CheckTree(proof, tree.N, tree.Hash, older.N, older.Hash)
}
